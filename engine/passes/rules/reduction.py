"""Reductions over dimensions of one element, and over dimensions a transpose has moved."""

from __future__ import annotations

from collections.abc import Sequence

from engine.ir import Instruction
from engine.ir.opcodes import COMMUTATIVE, neutral_element
from engine.ops.apply import single_operation
from engine.passes import construct
from engine.passes.rewriting import RuleSet, changed
from engine.passes.splats import splat_value

RULES = RuleSet()


def is_neutral(opcode: str, initial: Instruction) -> bool:
    """Whether combining with an initial value has no effect (a sum's zero may still turn -0 into +0)."""
    value = splat_value(initial)
    if value is None:
        return False
    return bool(value == neutral_element(opcode, initial.array_shape.element_type))


@RULES.on("reduce")
def without_unit_dimensions(instruction: Instruction) -> Instruction | None:
    """Removes reduced dimensions of size one with reshapes, before the others are reduced."""
    count = len(instruction.operands) // 2
    arrays, initial = instruction.operands[:count], instruction.operands[count:]
    sizes, reduced = arrays[0].array_shape.dimensions, instruction["dimensions"]
    if reduced and all(sizes[d] != 1 for d in reduced):
        return None
    dropped = {d for d in reduced if sizes[d] == 1}
    kept = [d for d in range(len(sizes)) if d not in dropped]
    inner = [construct.reshape(instruction, each, [sizes[d] for d in kept]) for each in arrays]
    left = tuple(kept.index(d) for d in reduced if d not in dropped)
    if left:
        return changed(instruction, operands=(*inner, *initial), dimensions=left)
    return _combined(instruction, inner, initial)


def _combined(
    instruction: Instruction, values: Sequence[Instruction], initial: Sequence[Instruction]
) -> Instruction | None:
    """A reduction of one element to each result: body(initial, element); None for a body with a loop, say."""
    opcode, dimensions = single_operation(instruction.called[0]), values[0].array_shape.dimensions
    if opcode in COMMUTATIVE and is_neutral(opcode, initial[0]):
        return values[0]
    spread = [construct.broadcast(instruction, each, dimensions, ()) if dimensions else each for each in initial]
    return construct.on_arrays(instruction, instruction.called[0], (*spread, *values), dimensions)


@RULES.on("reduce", of="transpose")
def reduce_of_transpose(instruction: Instruction) -> Instruction | None:
    """Reduces the operand without its transpose, if the remaining dimensions keep their order."""
    operand = instruction.operands[0]
    if single_operation(instruction.called[0]) not in COMMUTATIVE:
        return None
    permutation, reduced = operand["dimensions"], instruction["dimensions"]
    left = [old for new, old in enumerate(permutation) if new not in reduced]
    if left != sorted(left):
        return None
    dimensions = tuple(sorted(permutation[d] for d in reduced))
    return changed(instruction, operands=(operand.operands[0], instruction.operands[1]), dimensions=dimensions)


@RULES.on("reduce-window")
def window_of_one(instruction: Instruction) -> Instruction | None:
    """A window of one element that visits each element once."""
    if len(instruction.operands) != 2 or instruction.shape != instruction.operands[0].shape:
        return None
    operand, initial = instruction.operands
    still = all(each.is_trivial for each in instruction["window"])
    return _combined(instruction, [operand], [initial]) if still else None
