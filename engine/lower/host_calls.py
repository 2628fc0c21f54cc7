"""Lowers calls of functions of the host: one worker calls, and all leave the step after a call that fails."""

from __future__ import annotations

from engine.host_functions import bound_function
from engine.ir import Instruction, Shape
from engine.lower.context import Context, Value
from engine.program.program import Address, WorkEstimate
from engine.program.work.host_call import HostCall


def lower_host_function(context: Context, instruction: Instruction) -> Value:
    """The function's results and the token, which only orders calls: all calls touch the call block, in this order.

    Raises ConfigurationError for a function that no longer exists.
    """
    function, call = bound_function(instruction), context.call_block()
    operands = [context.buffer(operand) for operand in instruction.operands[:-1]]
    results = [context.result_buffer(instruction, k) for k in range(len(function.results))]
    work = HostCall(function, Address(call), tuple(map(Address, operands)), tuple(map(Address, results)))
    estimate = WorkEstimate({"copy": sum(b.shape.elements for b in (*operands, *results))})
    spans = [call, *operands], [call, *results]
    context.emit_for(instruction, work, 1, *spans, estimate, suffix=f".{function.function.name}", one_worker=True)
    context.mark("leave", 0)
    token = context.buffer(instruction.operands[-1])
    return token if isinstance(instruction.shape, Shape) else (*results, token)
