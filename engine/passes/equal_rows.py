"""Sums of rows that are added to the same row of a table, computed before the table is touched."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from engine.ir import Computation, GatherDimensionNumbers, Instruction, Shape
from engine.passes.construct import broadcast, constant, splat_of
from engine.passes.rewriting import make

ROW_GATHER = GatherDimensionNumbers((1,), (0,), (0,), 1)


class EqualRows:
    """The rows that a scatter adds to a table, by the positions of equal ids."""

    def __init__(self, scatter: Instruction) -> None:
        self.like = scatter
        _, self.ids, rows = scatter.operands
        self.named = rows.array_shape.dimensions[0]

    def sums(self, rows: Instruction) -> Instruction:
        """[named, width]: at the first of equal ids the sum of their `rows`, in their order; zeros at the others."""
        shape = rows.array_shape
        zeros = splat_of(self.like, np.zeros((), shape.dtype), shape)
        operands = (zeros, self.first, rows)
        return make(self.like, "scatter", shape, operands, self.like.called, **self.like.attributes)

    @cached_property
    def first(self) -> Instruction:
        """s32 [named]: the first position with an equal id; for ids out of range, perhaps their own."""
        named, rows = self.named, self.like.array_shape.dimensions[0]
        # Few positions are compared with each other; many are scattered into a table of all rows.
        return self._first_by_comparing() if named * named <= rows else self._first_by_row(rows)

    def _first_by_comparing(self) -> Instruction:
        like, named = self.like, self.named
        square, counts = Shape("pred", (named, named)), Shape("s32", (named, named))
        both = [broadcast(like, self._flat_ids(), square.dimensions, (d,)) for d in (0, 1)]
        equal = make(like, "compare", square, both, direction="EQ")
        positions = make(like, "iota", counts, (), iota_dimension=1)
        last = np.asarray(named, np.int32)
        chosen = make(like, "select", counts, (equal, positions, splat_of(like, last, counts)))
        initial = constant(like, last, Shape("s32"))
        shape = Shape("s32", (named,))
        return make(like, "reduce", shape, (chosen, initial), (_body("minimum", "s32"),), dimensions=(1,))

    def _first_by_row(self, rows: int) -> Instruction:
        like, named = self.like, self.named
        column, flat, table = Shape("s32", (named, 1)), Shape("s32", (named,)), Shape("s32", (rows, 1))
        positions = make(like, "iota", column, (), iota_dimension=0)
        empty = splat_of(like, np.asarray(named, np.int32), table)
        body = _body("minimum", "s32")
        lowest = make(like, "scatter", table, (empty, self.ids, positions), (body,), **like.attributes)
        found = make(like, "reshape", flat, (take_rows(like, lowest, self.ids),))
        # An id out of range finds the first position of another row, whose sum it must not join.
        ids = self._flat_ids()
        limits = [splat_of(like, np.asarray(limit, ids.array_shape.dtype), ids.array_shape) for limit in (0, rows)]
        pred = Shape("pred", (named,))
        inside = [
            make(like, "compare", pred, (ids, limit), direction=direction)
            for limit, direction in zip(limits, ("GE", "LT"), strict=True)
        ]
        own = make(like, "iota", flat, (), iota_dimension=0)
        return make(like, "select", flat, (make(like, "and", pred, inside), found, own))

    def _flat_ids(self) -> Instruction:
        kind = self.ids.array_shape.element_type
        return make(self.like, "reshape", Shape(kind, (self.named,)), (self.ids,))


def take_rows(like: Instruction, table: Instruction, ids: Instruction) -> Instruction:
    """The rows of a table that ids name, [named, width]."""
    named, (_, width) = ids.array_shape.dimensions[0], table.array_shape.dimensions
    return make(
        *(like, "gather", table.array_shape.with_dimensions((named, width)), (table, ids)),
        gather_dimension_numbers=ROW_GATHER,
        gather_slice_sizes=(1, width),
    )


def pair(element_type: str) -> list[Instruction]:
    """The parameters of a computation that combines two numbers."""
    shape = Shape(element_type)
    return [Instruction(f"p{k}", "parameter", shape, (), {"parameter_number": k}) for k in range(2)]


def _body(opcode: str, element_type: str) -> Computation:
    both = pair(element_type)
    root = Instruction(opcode, opcode, Shape(element_type), tuple(both))
    return Computation(opcode, [*both, root], root)
