"""A codelet that calls a C function of the host in the middle of a step, in the floating-point state that C expects."""

from __future__ import annotations

from engine.codelets.host.queues import leave_step
from engine.codelets.language.build import codelet, inner
from engine.codelets.language.encoded import Encoded
from engine.codelets.language.intrinsic import intrinsic
from engine.codelets.language.memory import (
    FLUSH_TO_ZERO_ARM,
    FLUSH_TO_ZERO_X86,
    I64,
    floating_point_state,
    set_floating_point_state,
    store_i64,
)
from engine.codelets.language.record import Address, Record, Table, block, word
from engine.machine_code.llvm import ir
from engine.machine_code.processor import ARM, X86
from engine.program.work.host_call import HostCall


class HostCallBlock(Record):
    """Parameters of `host_call`, before the addresses of the operands and the addresses of the results."""

    call: Address = 0  # the call block
    function: int  # address of the function
    data: int  # last argument of the function
    status: Table  # return value of the function
    operands: int  # number of operands


@intrinsic
def call_with_three(builder: ir.IRBuilder, address: ir.Value, *arguments: ir.Value) -> ir.Value:
    """Calls `long f(long, long, long)` at an address."""
    function = ir.FunctionType(I64, [I64] * 3)
    return builder.call(builder.inttoptr(address, function.as_pointer()), arguments)


@intrinsic
def with_denormals(builder: ir.IRBuilder, state: ir.Value) -> ir.Value:
    """A floating-point state in which denormals are numbers, as functions of the host expect."""
    bits = FLUSH_TO_ZERO_X86 if X86 else FLUSH_TO_ZERO_ARM if ARM else 0
    return builder.and_(state, I64(~bits))


@inner
def call_host(parameters: int) -> None:
    """Calls a function of the host, for the codelet `host_call`."""
    operands = parameters + 8 * HostCallBlock.WORDS
    results = operands + 8 * word(parameters, HostCallBlock.OPERANDS)
    state = floating_point_state()
    set_floating_point_state(with_denormals(state))
    data = word(parameters, HostCallBlock.DATA)
    status = call_with_three(word(parameters, HostCallBlock.FUNCTION), operands, results, data)
    set_floating_point_state(state)
    store_i64(word(parameters, HostCallBlock.STATUS), status)
    if status != 0:
        leave_step(word(parameters, HostCallBlock.CALL))


@codelet
def host_call(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Calls the function; if it does not return 0, all workers leave the step at the next jump."""
    call_host(parameters)


def encoded_call(work: HostCall) -> Encoded:
    """The addresses of the function and of its arrays."""
    function = work.function
    head = HostCallBlock(
        call=work.call,
        function=function.address,
        data=function.data,
        status=function.status,
        operands=len(work.operands),
    )
    return Encoded.of(function.codelet or host_call, block(head, [*work.operands, *work.results]))
