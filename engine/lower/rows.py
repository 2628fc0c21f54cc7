"""Which rows of a loop's arrays belong together: those that one worker keeps from operation to operation.

A turn is short. Cut along the same rows throughout, each worker needs little but what it has made itself.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import prod

from engine.ir import Computation, DotDimensionNumbers, Instruction, Shape
from engine.program.program import Partition

MOST_UNITS = 16
LEAST_GRAIN = 4
LEAST_WORK = 1 << 14
"""Elements and multiply-adds of a turn below which one worker does it all: it would be over before another is there."""
NO_ARRAYS = frozenset(
    {"parameter", "constant", "iota", "tuple", "get-tuple-element", "while", "conditional", "dynamic-update-slice"}
)
"""What makes no array of a turn's own."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Arrays with `extent` as their first dimension (but for ones in front) are cut into pieces of `grain` rows."""

    extent: int
    grain: int

    def partition(self, shape: Shape) -> Partition | None:
        """The rows of an array, if it has them."""
        sizes = [size for size in shape.dimensions if size != 1]
        if not sizes or sizes[0] != self.extent or not shape.elements:
            return None
        return Partition(shape.elements // self.extent, self.extent, self.grain)


def rows_of(body: Computation) -> Rows | None:
    """The rows that most arrays of a turn have; None where there is too little to share out."""
    arrays = [
        shape
        for instruction in body.instructions
        if instruction.opcode not in NO_ARRAYS
        for shape in instruction.tuple_shapes
        if isinstance(shape, Shape) and shape.elements > 1
    ]
    if sum(_work(instruction) for instruction in body.instructions) < LEAST_WORK or not arrays:
        return None
    firsts = Counter(next(size for size in shape.dimensions if size != 1) for shape in arrays)
    extent, _ = max(firsts.items(), key=lambda pair: (pair[1], pair[0]))
    return Rows(extent, max(-(-extent // MOST_UNITS), min(LEAST_GRAIN, -(-extent // 2))))


def _work(instruction: Instruction) -> int:
    if instruction.opcode in NO_ARRAYS:
        return 0
    elements = sum(shape.elements for shape in instruction.tuple_shapes)
    if instruction.opcode == "dot":
        numbers: DotDimensionNumbers = instruction["dot_dimension_numbers"]
        sizes = instruction.operands[0].array_shape.dimensions
        return elements * prod(sizes[d] for d in numbers.lhs_contracting_dimensions)
    if instruction.opcode == "fusion":
        return elements * len(instruction.called[0].instructions)
    return elements
