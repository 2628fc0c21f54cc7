"""Index maps: the source index of each element when an operation only moves elements.

An index map gives, for each dimension of an array, its index as an affine expression of some loop indices.
"""

from __future__ import annotations

from math import prod

from engine.frozen import frozen
from engine.ir.module import Instruction
from engine.ir.shape import Shape


@frozen
class Affine:
    """sum of coefficients[d] * index[d], plus constant."""

    coefficients: tuple[int, ...]
    constant: int = 0

    def scaled(self, factor: int, offset: int = 0) -> Affine:
        return Affine(tuple(c * factor for c in self.coefficients), self.constant * factor + offset)

    def plus(self, other: Affine) -> Affine:
        pairs = zip(self.coefficients, other.coefficients, strict=True)
        return Affine(tuple(a + b for a, b in pairs), self.constant + other.constant)


IndexMap = tuple[Affine, ...]


def loop_index(dimension: int, rank: int) -> Affine:
    """The index of loop `dimension` of `rank` loops."""
    return Affine(tuple(int(d == dimension) for d in range(rank)))


def zero(rank: int) -> Affine:
    """Index 0 in all of `rank` loops."""
    return Affine((0,) * rank)


def spread(shape: Shape, extents: tuple[int, ...]) -> IndexMap | None:
    """The index map of an array in loops over its dimensions other than 1, or None where these are not `extents`."""
    rank = len(extents)
    if squeezed(shape) != tuple(e for e in extents if e != 1):
        return None
    loops = iter(range(rank))
    return tuple(zero(rank) if size == 1 else loop_index(next(loops), rank) for size in shape.dimensions)


def squeezed(shape: Shape) -> tuple[int, ...]:
    """The dimensions that are not 1."""
    return tuple(d for d in shape.dimensions if d != 1)


def row_major_strides(shape: Shape) -> tuple[int, ...]:
    """The row-major stride of each dimension, in elements."""
    return tuple(prod(shape.dimensions[d + 1 :]) for d in range(shape.rank))


def linear(shape: Shape, index_map: IndexMap, rank: int) -> Affine:
    """The row-major element number of an index map."""
    total = zero(rank)
    for index, stride in zip(index_map, row_major_strides(shape), strict=True):
        total = total.plus(index.scaled(stride))
    return total


def pull(instruction: Instruction, index_map: IndexMap, rank: int) -> IndexMap | None:
    """The index map of a moving instruction's operand, given the result's; None if the map is not affine."""
    operand = instruction.operands[0].array_shape
    opcode = instruction.opcode
    if opcode == "copy":
        return index_map
    if opcode == "broadcast":
        return tuple(index_map[d] for d in instruction["dimensions"])
    if opcode == "transpose":
        placed: dict[int, Affine] = dict(zip(instruction["dimensions"], index_map, strict=True))
        return tuple(placed[d] for d in range(operand.rank))
    if opcode == "slice":
        dimensions = instruction["slice_dimensions"]
        return tuple(i.scaled(d.stride, d.start) for i, d in zip(index_map, dimensions, strict=True))
    if opcode == "reverse":
        reversed_dimensions = set(instruction["dimensions"])
        sizes = operand.dimensions
        return tuple(i.scaled(-1, sizes[d] - 1) if d in reversed_dimensions else i for d, i in enumerate(index_map))
    return _pull_reshape(instruction.array_shape, operand, index_map, rank)


def _pull_reshape(result: Shape, operand: Shape, index_map: IndexMap, rank: int) -> IndexMap | None:
    """The index map through a reshape that merges dimensions or adds or drops 1s; None for a split: it divides."""
    if operand.elements == 0:
        return tuple(zero(rank) for _ in operand.dimensions)
    found: list[Affine] = []
    position = 0
    for size in operand.dimensions:
        if size == 1:
            found.append(zero(rank))
            continue
        merged, index = 1, zero(rank)
        while merged < size and position < result.rank:
            extent = result.dimensions[position]
            merged *= extent
            index = index.scaled(extent).plus(index_map[position])
            position += 1
        if merged != size:
            return None
        found.append(index)
    return tuple(found)
