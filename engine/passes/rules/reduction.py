"""Reductions over dimensions of one element, and over dimensions a transpose has moved."""

from __future__ import annotations

from collections.abc import Sequence

from engine.ir import Computation, Instruction
from engine.ir.opcodes import COMMUTATIVE, neutral_element
from engine.passes import construct
from engine.passes.rewriting import RuleSet, changed
from engine.passes.splats import splat_value

RULES = RuleSet()


def simple_body(computation: Computation) -> str | None:
    """The opcode of a body that combines its two parameters with one commutative operation, else None."""
    root = computation.root
    both = len(root.operands) == 2 and {o.opcode for o in root.operands} == {"parameter"}
    different = both and root.operands[0] is not root.operands[1]
    return root.opcode if different and root.opcode in COMMUTATIVE and len(computation.parameters) == 2 else None


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
    opcode, dimensions = simple_body(instruction.called[0]), values[0].array_shape.dimensions
    if opcode is not None and is_neutral(opcode, initial[0]):
        return values[0]
    spread = [construct.broadcast(instruction, each, dimensions, ()) if dimensions else each for each in initial]
    return construct.on_arrays(instruction, instruction.called[0], (*spread, *values), dimensions)


@RULES.on("reduce")
def reduce_of_transpose(instruction: Instruction) -> Instruction | None:
    """Reduces the operand without its transpose, if the remaining dimensions keep their order."""
    operand = instruction.operands[0]
    if len(instruction.operands) != 2 or operand.opcode != "transpose" or simple_body(instruction.called[0]) is None:
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
    still = all(
        w.size == w.stride == w.base_dilation == 1 and w.padding_low == w.padding_high == 0
        for w in instruction["window"]
    )
    operand, initial = instruction.operands
    return _combined(instruction, [operand], [initial]) if still else None
