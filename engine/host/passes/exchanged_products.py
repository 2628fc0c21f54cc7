"""Batches of float32 products with few columns, and many rows that are contiguous in memory, computed as transposes.

The left operand would be transposed in blocks, each of them to be multiplied by one vector of columns. As the right
operand it is read in place. Blocks of terms differ then, and with them the last bits of the sums. For the host only: a
chip's plan decides which operand its engine holds.
"""

from __future__ import annotations

import numpy as np

from engine.ir.shape import Shape
from engine.program.builder import ProgramBuilder
from engine.program.contraction import ContractionDraft, emit_contraction, undivided
from engine.program.copies import copy
from engine.program.program import Address, ComputeSet, Program
from engine.program.rewriter import with_emitted
from engine.program.views import View, stored_in
from engine.program.work.contraction import Contraction
from engine.program.work.offsets import axes_of, steps_of, table

SLIM, LEAST_LONG = 16, 128
"""Most columns, and fewest rows and terms, of a product that is computed as its transpose."""


def exchange_products(program: Program) -> Program:
    """Replaces slim products by their transposes, each with a copy to the result."""
    return with_emitted(program, _emit)


def _is_slim(work: Contraction) -> bool:
    """Whether a product has batches of its own in both operands, few columns, and contiguous long rows."""
    batches, rows, columns, terms = work.size
    if not work.is_float32 or work.splits > 1 or work.c.moved is not None or batches < 2:
        return False
    steps, even = steps_of(work.row_a.table)
    if not 1 < columns <= SLIM or min(rows, terms) < LEAST_LONG or not even or steps[0] != 4:
        return False
    return all(len(np.unique(each.table)) == batches for each in (work.batch_a, work.batch_b))


def _emit(builder: ProgramBuilder, compute_set: ComputeSet) -> None:
    """Emits a slim product with its columns as rows, and the copy to the result, unless that has no strides."""
    work = compute_set.work
    if not isinstance(work, Contraction) or not _is_slim(work):
        return
    batches, rows, columns, _ = work.size
    axes, row = axes_of(work.batch_c.table), axes_of(work.row_c.table)
    if axes is None or row is None or len(row) != 1:
        return
    rank, pitch = len(axes), row[0][1]
    shape = Shape("f32", (*(extent for extent, _ in axes), rows, columns))
    order = [*sorted(range(rank), key=lambda d: -axes[d][1]), rank + 1, rank]
    made = stored_in(f"{compute_set.name}.transposed", shape, order)
    pitches = zip((extent for extent, _ in axes), made.strides, strict=False)
    exchanged = undivided(
        *(work.b, work.a, Address(made.buffer)),
        rows=(table((columns, work.stride_b)), table((columns, made.strides[-1]))),
        terms=(work.k_b.table, work.k_a.table),
        batches=(work.batch_b.table, work.batch_a.table, table(*pitches)),
        columns=rows,
        stride_b=4,
        operand_type="f32",
    )
    emit_contraction(builder, ContractionDraft(compute_set.name, exchanged, compute_set.op_name))
    first = work.c.offset + int(work.batch_c.table[0] + work.row_c.table[0])
    strides = (*(stride for _, stride in axes), pitch, 4)
    copy(builder, f"{compute_set.name}.copy", made, View(work.c.buffer, shape, first, strides), compute_set.op_name)
