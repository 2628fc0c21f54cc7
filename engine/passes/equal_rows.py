"""Sums of rows that are added to the same row of a table, computed before the table is touched."""

from __future__ import annotations

from functools import cached_property

from engine.ir import Instruction, Shape
from engine.ir.device_operations import FIRST_OF_EQUAL
from engine.passes.construct import splat_of
from engine.passes.rewriting import changed, make


class EqualRows:
    """The rows that a scatter adds to a table, by the positions of equal ids."""

    def __init__(self, scatter: Instruction) -> None:
        self.like = scatter
        _, self.ids, rows = scatter.operands
        self.named = rows.array_shape.dimensions[0]

    def sums(self, rows: Instruction) -> Instruction:
        """[named, width]: at the first of equal ids the sum of their `rows`, in their order; zeros at the others."""
        shape = rows.array_shape
        operands = (splat_of(self.like, 0, shape), self.first, rows)
        return changed(self.like, shape=shape, operands=operands)

    @cached_property
    def first(self) -> Instruction:
        """s32 [named]: the first position with an equal id."""
        kind = self.ids.array_shape.element_type
        ids = make(self.like, "reshape", Shape(kind, (self.named,)), (self.ids,))
        shape = Shape("s32", (self.named,))
        return make(self.like, "custom-call", shape, (ids,), custom_call_target=FIRST_OF_EQUAL)
