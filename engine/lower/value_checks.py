"""Lowers checks of values: a pass over the operand, and a mark at which all workers leave the step if one fails."""

from __future__ import annotations

from engine.ir import Instruction
from engine.ir.value_checks import ValueCheck
from engine.lower.context import Context, Value
from engine.program.program import Address, Partition, Span
from engine.program.work.value_check import CheckRecord, ValueCheckWork

GRAIN = 1 << 14
"""Elements of a unit; one worker checks fewer than this in some microseconds."""


def lower_value_check(context: Context, instruction: Instruction) -> Value:
    """The token, which only keeps the check alive."""
    operand, token = instruction.operands
    buffer, shape = context.buffer(operand), operand.array_shape
    check = ValueCheck.of(instruction)
    units = -(-shape.elements // GRAIN)
    if units:
        call, record = Address(context.call_block()), CheckRecord(units)
        work = ValueCheckWork(check, shape, instruction.op_name, call, Address(buffer), GRAIN, record)
        span = Span(buffer, Partition(1, shape.elements, GRAIN)) if units > 1 else Span(buffer)
        # A chip does not check: no work for the cost report.
        context.emit_for(instruction, work, units, [span], [], one_worker=units == 1)
        context.mark("leave", 0)
    return context.buffer(token)
