"""Properties of an instruction, from the row of its opcode and from its types, attributes and callees."""

from __future__ import annotations

from collections.abc import Iterator

from engine.ir.device_operations import is_host_function, is_queue
from engine.ir.module import Computation, Instruction, Module
from engine.ir.opcodes import COMMUTATIVE, CONTROL_FLOW, EFFECTS, ELEMENTWISE, OPCODES
from engine.ir.shape import FLOATS


def is_elementwise(instruction: Instruction) -> bool:
    """Whether each element of the result is computed from the elements at the same index of all operands."""
    if instruction.opcode not in ELEMENTWISE:
        return False
    dimensions = instruction.array_shape.dimensions
    return all(operand.array_shape.dimensions == dimensions for operand in instruction.operands)


def is_commutative(instruction: Instruction) -> bool:
    """Whether the two operands may be exchanged without changing a bit of the result."""
    if instruction.opcode == "compare":
        return instruction["direction"] in ("EQ", "NE")
    if instruction.opcode not in COMMUTATIVE:
        return False
    return not OPCODES[instruction.opcode].either_zero or instruction.array_shape.element_type not in FLOATS


def _exchanges(instruction: Instruction) -> bool:
    """Whether an instruction exchanges data with the host, or is marked as having a side effect."""
    if instruction.opcode in EFFECTS and OPCODES[instruction.opcode].effect == "host":
        return True
    if not instruction.attributes:
        return False
    return instruction.get("custom_call_has_side_effect", False) or is_queue(instruction)


def has_side_effect(instruction: Instruction) -> bool:
    """Whether an instruction, or one in a computation that it calls, has a side effect other than on random state."""
    return any(map(_exchanges, _with_called(instruction)))


def is_repeatable(instruction: Instruction) -> bool:
    """Whether running an instruction twice on the same operands gives the same result and does nothing else."""
    if not instruction.called:
        return instruction.opcode not in EFFECTS and not _exchanges(instruction)
    every = _with_called(instruction)
    return not any(each.opcode in EFFECTS or is_host_function(each) or _exchanges(each) for each in every)


def _with_called(instruction: Instruction) -> Iterator[Instruction]:
    """An instruction, and all of the computations that it calls."""
    pending = [instruction]
    while pending:
        current = pending.pop()
        yield current
        pending += [inner for computation in current.called for inner in computation.instructions]


def steered_computations(module: Module) -> set[Computation]:
    """The entry, and the computations that control flow calls: all but those that are applied to elements."""
    callers = (each for each in module.instructions() if each.opcode in CONTROL_FLOW)
    return {module.entry, *(called for each in callers for called in each.called)}
