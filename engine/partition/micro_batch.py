"""One micro-batch's data in a loop over all: its rows of feeds, its replica's variables, its term of a sum."""

from __future__ import annotations

from engine.ir import Instruction
from engine.ir.builder import Builder
from engine.ir.module import topological
from engine.partition.accumulation import Accumulation
from engine.partition.marks import is_total
from engine.passes.equal_rows import EqualRows

INDEX = "s32"
"""The element type of a micro-batch's number."""
Totals = tuple[Instruction, ...]
"""A loop's state for one gradient: the sum so far, or the ids and the rows of all micro-batches."""


class MicroBatch:
    """Micro-batch number `index`, in the computation that is being built."""

    def __init__(self, builder: Builder, accumulation: Accumulation, index: Instruction) -> None:
        self.b, self._accumulation, self.index = builder, accumulation, index
        self._replica: Instruction | None = None

    def feed(self, array: Instruction, parameter: Instruction) -> Instruction:
        """The rows of one micro-batch, shaped like `parameter`, of an array with the rows of all."""
        dimensions = parameter.array_shape.dimensions
        rows = dimensions[0] if dimensions else 1
        start = self.b.multiply(self.index, self.b.constant(rows, INDEX))
        sliced = self._slice(array, start, (rows, *dimensions[1:]))
        return sliced if dimensions else self.b.reshape(sliced, ())

    def taken(self, rows: Instruction, number: Instruction) -> Instruction:
        """Element `number` of an array along its first dimension, without that dimension."""
        dimensions = rows.array_shape.dimensions[1:]
        return self.b.reshape(self._slice(rows, number, (1, *dimensions)), dimensions)

    def put(self, rows: Instruction, number: Instruction, value: Instruction) -> Instruction:
        """An array with element `number` along its first dimension replaced."""
        row = self.b.reshape(value, (1, *value.array_shape.dimensions))
        starts = self._starts(number, rows)
        return self.b.instruction("dynamic-update-slice", rows.shape, (rows, row, *starts))

    @property
    def replica(self) -> Instruction:
        """The number of this micro-batch's replica."""
        if self._replica is None:
            self._replica = self.b.elementwise("remainder", self.index, self._replicas())
        return self._replica

    def accumulated(self, mark: Instruction, totals: Totals, gradient: Instruction) -> Totals:
        """A mark's totals with the gradient of this micro-batch, a copy of the marked one.

        Gradients are reduced by `reduction` over steps, and summed over replicas.
        """
        if len(totals) == 2:
            return self._with_named_rows(*totals, gradient)
        b, (total,) = self.b, totals
        element_type = total.array_shape.element_type
        if gradient.array_shape.element_type != element_type:
            gradient = b.convert(gradient, element_type)
        reduction = "sum" if is_total(mark) else self._accumulation.reduction
        if reduction == "mean":
            gradient = self._share(gradient)
        elif reduction == "running_mean":
            step = b.divide(self.index, self._replicas())
            exact = "f64" if element_type == "f64" else "f32"  # half types hold no large counts
            count = b.convert(b.add(step, b.constant(1, INDEX)), exact)
            gradient = b.divide(gradient, self._spread(count, total))
            # One sum holds all replicas' means: it is scaled once for each round of replicas.
            one = b.constant(1.0, exact)
            first = b.compare(self.replica, b.constant(0, INDEX), "EQ")
            kept = b.select(first, b.divide(b.subtract(count, one), count), one)
            total = b.multiply(total, self._spread(kept, total))
        return (b.add(total, gradient),)

    def _with_named_rows(
        self, ids: Instruction, rows: Instruction, gradient: Instruction
    ) -> tuple[Instruction, Instruction]:
        """Puts the ids and rows of this micro-batch, whose gradient is a sum of rows, among those of all others."""
        b = self.b
        sums = EqualRows(gradient).sums(gradient.operands[2])
        known = set(b.instructions)
        b.instructions += [each for each in topological([sums]) if each not in known]
        if self._accumulation.reduction == "mean":
            sums = self._share(sums)
        named = b.reshape(gradient.operands[1], ids.array_shape.dimensions[1:])
        return self.put(ids, self.index, named), self.put(rows, self.index, sums)

    def _share(self, gradient: Instruction) -> Instruction:
        """A micro-batch's share of a mean."""
        b, shape = self.b, gradient.array_shape
        return b.divide(gradient, b.splat(self._accumulation.steps, shape.dimensions, shape.element_type))

    def _replicas(self) -> Instruction:
        return self.b.constant(self._accumulation.replicas, INDEX)

    def _spread(self, scalar: Instruction, like: Instruction) -> Instruction:
        element_type = like.array_shape.element_type
        if scalar.array_shape.element_type != element_type:
            scalar = self.b.convert(scalar, element_type)
        return self.b.broadcast(scalar, like.array_shape.dimensions, ())

    def _slice(self, array: Instruction, start: Instruction, sizes: tuple[int, ...]) -> Instruction:
        shape = array.array_shape.with_dimensions(sizes)
        operands = (array, *self._starts(start, array))
        return self.b.instruction("dynamic-slice", shape, operands, dynamic_slice_sizes=sizes)

    def _starts(self, first: Instruction, array: Instruction) -> list[Instruction]:
        zero = self.b.constant(0, INDEX)
        return [first, *[zero] * (array.array_shape.rank - 1)]
