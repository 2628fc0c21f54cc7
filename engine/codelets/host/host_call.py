"""A codelet that calls a C function of the host in the middle of a step, in the floating-point state that C expects."""

from __future__ import annotations

from engine.codelets.host.queues import leave_step
from engine.codelets.language.build import codelet, inner
from engine.codelets.language.encoded import Encoded
from engine.codelets.language.memory import (
    call_address,
    floating_point_state,
    set_floating_point_state,
    store_i64,
    with_denormals,
)
from engine.codelets.language.record import Address, Record, Table, block
from engine.program.work.custom_calls import HostCall


class HostCallBlock(Record):
    """Parameters of `host_call`, before the addresses of the operands and the addresses of the results."""

    call: Address = 0  # the call block
    function: int  # address of the function
    data: int  # last argument of the function
    status: Table  # return value of the function
    operands: int  # number of operands


@inner
def call_host(parameters: int) -> None:
    """Calls a function of the host, for the codelet `host_call`."""
    given, operands = HostCallBlock.read(parameters), parameters + 8 * HostCallBlock.WORDS
    state = floating_point_state()
    set_floating_point_state(with_denormals(state))
    status = call_address(given.function, operands, operands + 8 * given.operands, given.data)
    set_floating_point_state(state)
    store_i64(given.status, status)
    if status != 0:
        leave_step(given.call)


@codelet
def host_call(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Calls the function; if it does not return 0, all workers leave the step at the next jump."""
    call_host(parameters)


def encoded_call(work: HostCall) -> Encoded:
    """The addresses of the function and of its arrays."""
    function = work.function
    head = HostCallBlock.of(function, call=work.call, function=function.address, operands=len(work.operands))
    return Encoded.of(function.codelet or host_call, block(head, [*work.operands, *work.results]))
