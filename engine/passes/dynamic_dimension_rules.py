"""Rules for the dynamic sizes of each operation's result."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from engine.ir import (
    Computation,
    GatherDimensionNumbers,
    Instruction,
    PaddingDimension,
    ScatterDimensionNumbers,
    Shape,
    TupleShape,
)
from engine.ir.opcodes import ELEMENTWISE
from engine.ir.value_checks import ValueCheck, is_value_check
from engine.passes.dynamic_dimensions import Resolver, Sizes, on, refused, resolve_dynamic_dimensions
from engine.passes.rewriting import Names, changed, make

# Import it from here: the rules below are registered then.
__all__ = ["resolve_dynamic_dimensions"]
Resolved = tuple[Instruction, Sizes]


@on("set-dimension-size")
def _set(made: Resolver, instruction: Instruction) -> Resolved:
    operand, size = instruction.operands
    (dimension,) = instruction["dimensions"]
    # A copy, since the operand keeps its own sizes.
    copied = made.make("copy", operand.shape, operand)
    return copied, {**made.sizes_of(operand), dimension: size}


@on("get-dimension-size")
def _get(made: Resolver, instruction: Instruction) -> Resolved:
    (operand,) = instruction.operands
    (dimension,) = instruction["dimensions"]
    size = made.sizes_of(operand).get(dimension)
    return size or made.number(operand.array_shape.dimensions[dimension]), {}


@on(*ELEMENTWISE, "get-tuple-element")
def _unchanged(made: Resolver, instruction: Instruction) -> Resolved:
    return instruction, made.sizes_of(*instruction.operands)


@on("transpose")
def _transpose(made: Resolver, instruction: Instruction) -> Resolved:
    sizes = made.sizes_of(*instruction.operands)
    return instruction, {new: sizes[old] for new, old in enumerate(instruction["dimensions"]) if old in sizes}


@on("broadcast")
def _broadcast(made: Resolver, instruction: Instruction) -> Resolved:
    sizes = made.sizes_of(*instruction.operands)
    return instruction, {instruction["dimensions"][d]: size for d, size in sizes.items()}


@on("slice")
def _slice(made: Resolver, instruction: Instruction) -> Resolved:
    """Keeps each dynamic dimension whole."""
    sizes, (operand,) = made.sizes_of(*instruction.operands), instruction.operands
    old, kept = operand.array_shape.dimensions, instruction.array_shape.dimensions
    return instruction, _other_than(instruction, sizes, [d for d in sizes if kept[d] != old[d]])


@on("pad")
def _pad(made: Resolver, instruction: Instruction) -> Resolved:
    """Gives elements beyond the size the padding's value, which then ends where XLA's padding would."""
    (operand, fill), config = instruction.operands, instruction["padding_config"]
    sizes = made.sizes_of(operand)
    padded = {d: size for d, size in sizes.items() if config[d] != PaddingDimension(0, 0)}
    for d, size in padded.items():
        edges = config[d].edge_padding_low, config[d].edge_padding_high
        if config[d].interior_padding or min(edges) < 0:
            raise refused(instruction, d)
        sizes[d] = made.make("add", size.shape, size, made.number(sum(edges)))
    return made.with_operands(instruction, (made.masked(operand, padded, fill), fill)), sizes


@on("concatenate")
def _concatenate(made: Resolver, instruction: Instruction) -> Resolved:
    """Places each operand behind the valid elements of those before it, over their rest."""
    (dimension,) = instruction["dimensions"]
    sizes = made.sizes_of(*instruction.operands)
    if sizes.pop(dimension, None) is None:
        return instruction, sizes
    shape, start = instruction.array_shape, made.number(0)
    joined = made.spread(made.number(0, shape.element_type), shape.dimensions)
    for operand in instruction.operands:
        starts = [start if d == dimension else made.number(0) for d in range(shape.rank)]
        joined = made.make("dynamic-update-slice", shape, joined, operand, *starts)
        size = made.sizes_of(operand).get(dimension) or made.number(operand.array_shape.dimensions[dimension])
        start = made.make("add", start.shape, start, size)
    return joined, {**sizes, dimension: start}


@on("sort")
def _sort(made: Resolver, instruction: Instruction) -> Resolved:
    """Sorts elements beyond the size behind all others."""
    sizes, (dimension,) = made.sizes_of(*instruction.operands), instruction["dimensions"]
    if dimension not in sizes:
        return instruction, sizes
    shape = instruction.operands[0].array_shape.with_type("s32")
    beyond = made.masked(made.spread(made.number(0), shape.dimensions), {dimension: sizes[dimension]}, made.number(1))
    shapes = (*instruction.tuple_shapes, shape)
    called = (_within_sizes(instruction.called[0]),)
    ordered = made.added(
        changed(instruction, shape=TupleShape(shapes), operands=(*instruction.operands, beyond), called=called)
    )
    if len(shapes) > 2:
        return ordered, sizes
    return made.make("get-tuple-element", instruction.shape, ordered, tuple_index=0), sizes


def _within_sizes(comparator: Computation) -> Computation:
    """The comparator of one more pair of operands: 1 for elements that come last, 0 for others."""
    root, names = comparator.root, Names(comparator.instructions)
    made = list(comparator.instructions)

    def add(opcode: str, element_type: str, *operands: Instruction, **attributes: Any) -> Instruction:
        one = make(root, opcode, Shape(element_type), operands, **attributes)
        made.append(names.settle(one, one))
        return made[-1]

    count = len(comparator.parameters)
    left, right = (add("parameter", "s32", parameter_number=count + k) for k in (0, 1))
    is_before, is_equal = (add("compare", "pred", left, right, direction=each) for each in ("LT", "EQ"))
    return Computation(comparator.name, made, add("select", "pred", is_equal, root, is_before))


@on("reduce-window")
def _reduce_window(made: Resolver, instruction: Instruction) -> Resolved:
    """Gives elements beyond the size the initial value, as padding has, where windows are as many as elements."""
    half = len(instruction.operands) // 2
    arrays, starts = instruction.operands[:half], instruction.operands[half:]
    sizes, window = made.sizes_of(*arrays), instruction["window"]
    before, after = arrays[0].array_shape.dimensions, instruction.tuple_shapes[0].dimensions
    strides = [d for d in sizes if before[d] != after[d] or window[d].stride != 1 or window[d].base_dilation != 1]
    sizes = _other_than(instruction, sizes, strides)
    touched = {d: size for d, size in sizes.items() if not window[d].is_trivial}
    masked = [made.masked(array, touched, start) for array, start in zip(arrays, starts, strict=True)]
    return made.with_operands(instruction, (*masked, *starts)), sizes


@on("reverse")
def _in_other_dimensions(made: Resolver, instruction: Instruction) -> Resolved:
    sizes = made.sizes_of(*instruction.operands)
    return instruction, _other_than(instruction, sizes, instruction["dimensions"])


@on("tuple")
def _tuple(made: Resolver, instruction: Instruction) -> Resolved:
    """A tuple of arrays that all have the same sizes."""
    first, *others = (made.sizes_of(operand) for operand in instruction.operands)
    if any(sizes != first for sizes in others):
        raise refused(instruction, min({d for sizes in (first, *others) for d in sizes}))
    return instruction, first


@on("reshape")
def _reshape(made: Resolver, instruction: Instruction) -> Resolved:
    (operand,) = instruction.operands
    before, after = operand.array_shape.dimensions, instruction.array_shape.dimensions
    sizes: Sizes = {}
    for d, size in made.sizes_of(operand).items():
        index = index_after_reshape(before, after, d)
        if index is None:
            raise refused(instruction, d)
        new, factor, divisor = index
        size = made.make("multiply", size.shape, size, made.number(factor)) if factor != 1 else size
        sizes[new] = made.make("divide", size.shape, size, made.number(divisor)) if divisor != 1 else size
    return instruction, sizes


@on("dynamic-reshape")
def _dynamic_reshape(made: Resolver, instruction: Instruction) -> Resolved:
    """Ignores the operands that give sizes: the sizes follow from those of the array."""
    array = instruction.operands[0]
    reshaped = made.make("reshape", instruction.shape, array)
    return reshaped, _reshape(made, changed(reshaped, operands=(array,)))[1]


@on("reduce")
def _reduce(made: Resolver, instruction: Instruction) -> Resolved:
    """Replaces elements beyond the size by the initial value, which a reduction may take any number of times."""
    half = len(instruction.operands) // 2
    arrays, starts = instruction.operands[:half], instruction.operands[half:]
    sizes, reduced = made.sizes_of(*arrays), set(instruction["dimensions"])
    inner = {d: size for d, size in sizes.items() if d in reduced}
    masked = [made.masked(array, inner, start) for array, start in zip(arrays, starts, strict=True)]
    outer = {d - sum(r < d for r in reduced): size for d, size in sizes.items() if d not in reduced}
    return made.with_operands(instruction, (*masked, *starts)), outer


@on("custom-call")
def _value_check(made: Resolver, instruction: Instruction) -> Resolved:
    """Replaces elements beyond the size by a value that passes."""
    if not is_value_check(instruction):
        sizes = made.sizes_of(*instruction.operands)
        raise refused(instruction, next(iter(sizes)))
    (operand,), check = instruction.operands, ValueCheck.of(instruction)
    passing = 1 if check.kind == "nonzero" else max(check.lows[0], 0)
    fill = made.number(passing, operand.array_shape.element_type)
    return made.with_operands(instruction, [made.masked(operand, made.sizes_of(operand), fill)]), {}


@on("dot")
def _dot(made: Resolver, instruction: Instruction) -> Resolved:
    """Replaces elements beyond the size by zero where they would be summed over."""
    numbers = instruction["dot_dimension_numbers"]
    contracted: Sizes = {}
    for operand, contracting in zip(instruction.operands, numbers.contracting, strict=True):
        own = made.sizes_of(operand)
        contracted |= {index: own[d] for index, d in enumerate(contracting) if d in own}
    operands: list[Instruction] = []
    sizes: Sizes = {}
    index = len(numbers.lhs_batch_dimensions)
    for side, operand in enumerate(instruction.operands):
        contracting = numbers.contracting[side]
        own, zero = made.sizes_of(operand), made.number(0, operand.array_shape.element_type)
        operands.append(made.masked(operand, {contracting[p]: size for p, size in contracted.items()}, zero))
        sizes |= {p: own[d] for p, d in enumerate(numbers.batch[side]) if d in own}
        free = numbers.free(side, operand.array_shape.rank)
        sizes |= {index: own[d] for index, d in enumerate(free, index) if d in own}
        index += len(free)
    return made.with_operands(instruction, operands), sizes


@on("gather")
def _gather(made: Resolver, instruction: Instruction) -> Resolved:
    """Fetches arbitrary rows for indices beyond their size, and a dynamic dimension whole or one index at a time."""
    numbers, slices = instruction["gather_dimension_numbers"], instruction["gather_slice_sizes"]
    operand, indices = instruction.operands
    own, of_indices = made.sizes_of(operand), made.sizes_of(indices)
    rank = instruction.array_shape.rank
    batch = dict(zip(_index_dimensions(numbers, indices), _without(range(rank), numbers.offset_dims), strict=True))
    gone = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    offsets = dict(zip(_without(range(len(slices)), gone), numbers.offset_dims, strict=True))
    sizes = {batch[d]: size for d, size in _other_than(instruction, of_indices, (numbers.index_vector_dim,)).items()}
    for d, size in own.items():
        if d in offsets and slices[d] == operand.array_shape.dimensions[d]:
            sizes[offsets[d]] = size
        elif slices[d] != 1:
            raise refused(instruction, d)
    return instruction, sizes


@on("scatter")
def _scatter(made: Resolver, instruction: Instruction) -> Resolved:
    """Scatters updates beyond the size to index -1, which is out of bounds."""
    numbers, count = instruction["scatter_dimension_numbers"], len(instruction.operands) // 2
    arrays, indices = instruction.operands[:count], instruction.operands[count]
    updates = instruction.operands[count + 1 :]
    scattered_dims = _without(range(updates[0].array_shape.rank), numbers.update_window_dims)
    positions = dict(zip(scattered_dims, _index_dimensions(numbers, indices), strict=True))
    of_updates = _other_than(instruction, made.sizes_of(*updates), numbers.update_window_dims)
    sizes = _other_than(instruction, made.sizes_of(indices), (numbers.index_vector_dim,))
    sizes |= {positions[d]: size for d, size in of_updates.items()}
    if sizes and (count > 1 or not numbers.scatter_dims_to_operand_dims):
        raise refused(instruction, next(iter(sizes)))
    of_result = made.sizes_of(*arrays)
    if sizes:
        indices = _signed(made, indices)
        indices = made.masked(indices, sizes, made.number(-1, indices.array_shape.element_type))
    scattered = made.with_operands(
        instruction, (*arrays, indices, *updates), indices_are_sorted=False, unique_indices=False
    )
    return scattered, of_result


def _signed(made: Resolver, indices: Instruction) -> Instruction:
    shape = indices.array_shape
    return made.make("convert", shape.with_type("s64"), indices) if shape.element_type[0] == "u" else indices


def _index_dimensions(numbers: GatherDimensionNumbers | ScatterDimensionNumbers, indices: Instruction) -> list[int]:
    return _without(range(indices.array_shape.rank), (numbers.index_vector_dim,))


def _without(dimensions: Iterable[int], others: Sequence[int]) -> list[int]:
    return [d for d in dimensions if d not in others]


def _other_than(instruction: Instruction, sizes: Sizes, dimensions: Sequence[int]) -> Sizes:
    """The sizes; raises UnsupportedOperation if one belongs to one of these dimensions."""
    for d in dimensions:
        if d in sizes:
            raise refused(instruction, d)
    return sizes


def index_after_reshape(before: Sequence[int], after: Sequence[int], d: int) -> tuple[int, int, int] | None:
    """The new index of dimension d, and factor and divisor of its size; None if valid elements would be scattered.

    Valid elements stay contiguous at the start if d is the first of the dimensions it is merged with or split into.
    """
    if tuple(before[: d + 1]) == tuple(after[: d + 1]):
        return d, 1, 1
    from_end = len(before) - d
    if tuple(before[d:]) == tuple(after[len(after) - from_end :]) and len(after) >= from_end:
        return len(after) - from_end, 1, 1
    outer = math.prod(before[:d])
    for new in range(len(after)):
        if math.prod(after[:new]) == outer and after[new] > 1:
            one, other = before[d], after[new]
            if other % one == 0 and math.prod(before[d + 1 :]) % (other // one) == 0:
                return _merged(before, after, d, new)
            return (new, 1, one // other) if one % other == 0 else None
    return None


def _merged(before: Sequence[int], after: Sequence[int], d: int, new: int) -> tuple[int, int, int] | None:
    """Dimension d merged with whole dimensions after it."""
    factor = after[new] // before[d]
    for end in range(d + 1, len(before) + 1):
        if math.prod(before[d + 1 : end]) == factor:
            return new, factor, 1
    return None
