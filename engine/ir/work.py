"""Work estimates of instructions, and the number of rows along which most of the work is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import prod

from engine.ir.attributes import DotDimensionNumbers
from engine.ir.module import Instruction
from engine.ir.opcodes import CONTROL_FLOW, SOURCES, TUPLES
from engine.ir.shape import Shape

NO_ARRAYS = SOURCES | TUPLES | CONTROL_FLOW | {"dynamic-update-slice"}
"""Opcodes that produce no array of their own."""


def work_of(instruction: Instruction) -> int:
    """The work estimate of an instruction: its elements, a dot's multiply-adds or a fusion's operations."""
    if instruction.opcode in NO_ARRAYS:
        return 0
    elements = sum(shape.elements for shape in instruction.tuple_shapes if isinstance(shape, Shape))
    if instruction.opcode == "dot":
        numbers: DotDimensionNumbers = instruction["dot_dimension_numbers"]
        sizes = instruction.operands[0].array_shape.dimensions
        return elements * prod(sizes[d] for d in numbers.lhs_contracting_dimensions)
    if instruction.opcode == "fusion":
        return elements * len(instruction.called[0].instructions)
    return elements


def most_rows(instructions: Iterable[Instruction]) -> int | None:
    """The leading dimension, of those other than 1, of the arrays with most work; None if there are none."""
    firsts: Counter[int] = Counter()
    for instruction in instructions:
        for shape in instruction.tuple_shapes:
            sizes = [size for size in shape.dimensions if size != 1] if isinstance(shape, Shape) else []
            if sizes and instruction.opcode not in NO_ARRAYS:
                firsts[sizes[0]] += work_of(instruction)
    return max(firsts, key=lambda rows: (firsts[rows], rows), default=None)
