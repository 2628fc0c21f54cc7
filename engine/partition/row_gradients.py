"""Gradients of large embedding tables over micro-batches: the rows of all are kept, and added after the loop.

A loop would add a whole table in each iteration. Rows of one micro-batch with equal ids are summed first, at the first
of these ids, so that all sums have the same bits as sums of whole tables.
"""

from __future__ import annotations

import numpy as np

from engine.ir import Instruction, Shape
from engine.ir.builder import Builder
from engine.partition.accumulation import Accumulation
from engine.partition.marks import accumulator_of, is_total
from engine.partition.micro_batch import Totals
from engine.passes.sparse_updates import is_row_sum


def is_of_rows(mark: Instruction, accumulation: Accumulation) -> bool:
    """Whether the marked gradient names few rows of a large table, also in all micro-batches together."""
    gradient = mark.operands[0]
    return (
        accumulation.reduction != "running_mean"
        and accumulation.together == 1
        and not is_total(mark)
        and accumulator_of(mark) == gradient.array_shape.element_type == "f32"
        and is_row_sum(gradient, accumulation.micro_batches)
    )


def row_shapes(mark: Instruction, micro_batches: int) -> tuple[Shape, Shape]:
    """Shapes of the ids and rows of all micro-batches: [micro-batches, named], [micro-batches, named, width]."""
    _, ids, rows = (operand.array_shape for operand in mark.operands[0].operands)
    named, width = rows.dimensions
    return ids.with_dimensions((micro_batches, named)), rows.with_dimensions((micro_batches, named, width))


def table_of(entry: Builder, mark: Instruction, totals: Totals) -> Instruction:
    """The sum of the rows of all micro-batches."""
    gradient, (ids, rows) = mark.operands[0], totals
    batches, named, width = rows.array_shape.dimensions
    flat = entry.reshape(ids, (batches * named, *gradient.operands[1].array_shape.dimensions[1:]))
    zeros = entry.splat(np.zeros((), np.float32), gradient.array_shape.dimensions)
    operands = (zeros, flat, entry.reshape(rows, (batches * named, width)))
    made = entry.instruction("scatter", gradient.shape, operands, gradient.called, **gradient.attributes)
    made.op_name = gradient.op_name
    return made
