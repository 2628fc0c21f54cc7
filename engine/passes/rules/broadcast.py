"""Broadcasts in canonical form: of an operand without unit dimensions, in order, that is no broadcast itself."""

from __future__ import annotations

from engine.ir import Instruction
from engine.passes import construct
from engine.passes.rewriting import RuleSet, changed

RULES = RuleSet()


@RULES.on("broadcast")
def adds_nothing(instruction: Instruction) -> Instruction | None:
    """A broadcast that has no more elements than its operand, in the same order, is a reshape."""
    operand, mapping = instruction.operands[0], instruction["dimensions"]
    ordered = list(mapping) == sorted(mapping)
    if not ordered or operand.array_shape.elements != instruction.array_shape.elements:
        return None
    if operand.array_shape.elements == 0:
        return None if operand.shape != instruction.shape else operand
    return construct.reshape(instruction, operand, instruction.array_shape.dimensions)


@RULES.on("broadcast", of="broadcast")
def broadcast_of_broadcast(instruction: Instruction) -> Instruction | None:
    """A broadcast of a broadcast is one broadcast."""
    operand = instruction.operands[0]
    mapping = instruction["dimensions"]
    return changed(instruction, operands=operand.operands, dimensions=tuple(mapping[d] for d in operand["dimensions"]))


@RULES.on("broadcast")
def dimensions_in_order(instruction: Instruction) -> Instruction | None:
    """Transposes the operand, which has fewer elements, rather than the result."""
    mapping = instruction["dimensions"]
    if list(mapping) == sorted(mapping):
        return None
    order = sorted(range(len(mapping)), key=mapping.__getitem__)
    inner = construct.transpose(instruction, instruction.operands[0], order)
    return changed(instruction, operands=(inner,), dimensions=tuple(sorted(mapping)))


@RULES.on("broadcast")
def operand_without_unit_dimensions(instruction: Instruction) -> Instruction | None:
    """Drops the operand's dimensions of size one."""
    operand, mapping = instruction.operands[0], instruction["dimensions"]
    old = operand.array_shape.dimensions
    if 1 not in old:
        return None
    inner = construct.reshape(instruction, operand, [n for n in old if n != 1])
    return changed(
        instruction,
        operands=(inner,),
        dimensions=tuple(m for m, n in zip(mapping, old, strict=True) if n != 1),
    )
