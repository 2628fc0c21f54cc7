"""Slices, static and dynamic: of whole arrays, of slices, of broadcasts, of a concatenation's operands."""

from __future__ import annotations

from engine.ir import Instruction, SliceDimension
from engine.passes import construct
from engine.passes.rewriting import RuleSet, changed
from engine.passes.splats import splat_value

RULES = RuleSet()


@RULES.on("slice", of="slice")
def slice_of_slice(instruction: Instruction) -> Instruction | None:
    """A slice of a slice is one slice."""
    operand = instruction.operands[0]
    both = (operand["slice_dimensions"], instruction["slice_dimensions"])
    slices = tuple(map(_composed, *both, instruction.array_shape.dimensions))
    return changed(instruction, operands=operand.operands, slice_dimensions=slices)


def _composed(inner: SliceDimension, outer: SliceDimension, count: int) -> SliceDimension:
    if count == 0:
        return SliceDimension(0, 0)
    start = inner.start + outer.start * inner.stride
    stride = inner.stride * outer.stride
    return SliceDimension(start, start + (count - 1) * stride + 1, stride)


@RULES.on("slice", of="broadcast")
def slice_of_broadcast(instruction: Instruction) -> Instruction | None:
    """Slices the operand of the broadcast, in the dimensions along which it varies."""
    operand = instruction.operands[0]
    slices = instruction["slice_dimensions"]
    inner = construct.slice_of(instruction, operand.operands[0], [slices[d] for d in operand["dimensions"]])
    return construct.broadcast(instruction, inner, instruction.array_shape.dimensions, operand["dimensions"])


@RULES.on("slice", of="concatenate")
def slice_of_concatenate(instruction: Instruction) -> Instruction | None:
    """A slice within one operand of a concatenation is a slice of that operand."""
    operand = instruction.operands[0]
    if instruction.array_shape.elements == 0:
        return None
    (dimension,) = operand["dimensions"]
    slices = list(instruction["slice_dimensions"])
    cut = slices[dimension]
    end = cut.start + (instruction.array_shape.dimensions[dimension] - 1) * cut.stride + 1
    offset = 0
    for part in operand.operands:
        size = part.array_shape.dimensions[dimension]
        if offset <= cut.start and end <= offset + size:
            slices[dimension] = SliceDimension(cut.start - offset, end - offset, cut.stride)
            return construct.slice_of(instruction, part, slices)
        offset += size
    return None


@RULES.on("dynamic-slice")
def dynamic_slice_at_known_index(instruction: Instruction) -> Instruction | None:
    """The start is clamped to keep the slice in bounds; where only one start is in bounds it need not be known."""
    operand, *starts = instruction.operands
    slices = []
    for size, length, start in zip(
        operand.array_shape.dimensions, instruction.array_shape.dimensions, starts, strict=True
    ):
        value = splat_value(start)
        if value is None and size != length:
            return None
        first = 0 if value is None else min(max(0, int(value)), size - length)
        slices.append(SliceDimension(first, first + length))
    return construct.slice_of(instruction, operand, slices)


@RULES.on("dynamic-update-slice")
def update_of_everything_or_nothing(instruction: Instruction) -> Instruction | None:
    """An update as large as the operand replaces it; one without elements leaves it unchanged."""
    operand, update = instruction.operands[:2]
    if update.shape == instruction.shape:
        return update
    return operand if update.array_shape.elements == 0 else None
