"""pad, concatenate and reverse that add, join or reverse nothing."""

from __future__ import annotations

from engine.ir import Instruction, SliceDimension
from engine.passes import construct
from engine.passes.rewriting import RuleSet, changed
from engine.passes.splats import same_bits, splat_value

RULES = RuleSet()


@RULES.on("pad")
def pad_only_cuts(instruction: Instruction) -> Instruction | None:
    """Padding that adds no element: the operand, or a slice of it where edges are negative."""
    operand, config = instruction.operands[0], instruction["padding_config"]
    sizes = operand.array_shape.dimensions
    if 0 in instruction.array_shape.dimensions:
        return None
    for padding, size in zip(config, sizes, strict=True):
        if max(padding.edge_padding_low, padding.edge_padding_high) > 0 or (padding.interior_padding and size > 1):
            return None
    slices = [SliceDimension(-p.edge_padding_low, n + p.edge_padding_high) for p, n in zip(config, sizes, strict=True)]
    return construct.slice_of(instruction, operand, slices)


@RULES.on("pad")
def pad_of_the_same_value(instruction: Instruction) -> Instruction | None:
    """A splat padded with its own value, or an empty array padded, is a larger splat."""
    operand, padding = instruction.operands
    inside, outside = splat_value(operand), splat_value(padding)
    empty = operand.array_shape.elements == 0
    if not empty and (inside is None or outside is None or not same_bits(inside, outside)):
        return None
    dimensions = instruction.array_shape.dimensions
    return construct.broadcast(instruction, padding, dimensions, ()) if dimensions else None


@RULES.on("concatenate")
def without_empty_operands(instruction: Instruction) -> Instruction | None:
    """Joins only operands with elements; a single operand is the result."""
    full = [operand for operand in instruction.operands if operand.array_shape.elements]
    if len(full) == 1 or len(instruction.operands) == 1:
        return (full or list(instruction.operands))[0]
    return changed(instruction, operands=full) if full and len(full) < len(instruction.operands) else None


@RULES.on("concatenate")
def of_equal_splats(instruction: Instruction) -> Instruction | None:
    """Splats of one value become a larger splat."""
    values = [splat_value(operand) for operand in instruction.operands]
    first = values[0]
    if first is None or any(value is None or not same_bits(first, value) for value in values[1:]):
        return None
    return construct.splat_of(instruction, first, instruction.array_shape)


@RULES.on("reverse")
def reverse_of_what_has_one_order(instruction: Instruction) -> Instruction | None:
    """Drops the dimensions along which all elements are equal, or there is only one."""
    operand = instruction.operands[0]
    varying = set(range(operand.array_shape.rank))
    if operand.opcode == "broadcast":
        varying = set(operand["dimensions"])
    sizes = operand.array_shape.dimensions
    left = tuple(d for d in instruction["dimensions"] if sizes[d] > 1 and d in varying)
    if not left:
        return operand
    return changed(instruction, dimensions=left) if left != instruction["dimensions"] else None


@RULES.on("reverse", of="reverse")
def reverse_of_reverse(instruction: Instruction) -> Instruction | None:
    """Dimensions that are reversed twice are not reversed."""
    operand = instruction.operands[0]
    left = tuple(sorted(set(instruction["dimensions"]) ^ set(operand["dimensions"])))
    return changed(instruction, operands=operand.operands, dimensions=left) if left else operand.operands[0]
