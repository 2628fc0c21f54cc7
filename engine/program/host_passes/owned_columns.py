"""Elementwise work cut along the columns that a product with split terms reads: workers read what they have written.

A product of few rows is split along its terms. What adds such partial sums, and applies a bias and an activation, is
cut by rows, so that every worker needs all others' rows for the next product's terms. Cut along columns, like those
terms, it saves a barrier; so does the infeed of a batch. The bits are the same. For the host only.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from engine.program.program import Buffer, ComputeSet, Partition, Program, Span
from engine.program.rewriter import ProgramRewriter
from engine.program.work.contraction import Contraction
from engine.program.work.fused_loop import FusedLoop

LINE = 16
"""Elements of which a unit's columns are a multiple where they are written: no cache line has two workers."""
MOST_POINTS = 1 << 17
"""Of more terms the work takes so long that a barrier is nothing beside it. Chosen by hand."""


def own_columns(program: Program) -> Program:
    """Cuts what leads from one split product to the next by the next one's terms."""
    if program.exceptions is not None:
        return program
    rewriter = ProgramRewriter(program)
    changed = False
    for at, each in enumerate(program.compute_sets):
        product = by_terms(each)
        if product is None:
            continue
        terms = next(s for s in product.reads if s.partition is not None)
        assert terms.partition is not None
        chain = _chain(rewriter, terms.buffer, terms.partition, at)
        if chain or terms.buffer.kind == "feed":
            rewriter.replace(at, product)
            for number, cut in chain.items():
                rewriter.replace(number, cut)
            changed = True
    return rewriter.result() if changed else program


def by_terms(product: ComputeSet) -> ComputeSet | None:
    """A product whose units have terms of their own, the columns of a dense left operand, with that operand's cut."""
    work = product.work
    if not isinstance(work, Contraction) or product.one_worker or product.claimed or work.depthwise:
        return None
    batches, rows, _, terms = work.size
    item = work.a.buffer.shape.dtype.itemsize
    dense = (
        work.a.offset == 0
        and work.a.moved is None
        and work.a.buffer is not work.b.buffer
        and work.a.buffer.shape.elements == rows * terms
        and _is_run(work.row_a.table, terms * item)
        and _is_run(work.k_a.table, item)
    )
    pairs_cross = item < 4 and work.grid.k % 2
    if batches != 1 or work.splits < 2 or product.units != work.splits or not dense or pairs_cross:
        return None
    if [s.slot for s in product.reads if s.buffer is work.a.buffer] != [None]:
        return None
    cut = Partition(1, terms, work.grid.k)
    reads = [replace(s, partition=cut if s.buffer is work.a.buffer else None) for s in product.reads]
    return replace(product, reads=reads)


def _is_run(offsets: np.ndarray, step: int) -> bool:
    return bool(np.all(offsets == np.arange(len(offsets)) * step))


def _chain(rewriter: ProgramRewriter, buffer: Buffer, columns: Partition, at: int) -> dict[int, ComputeSet]:
    """The compute sets, cut along columns, that lead from partial sums to a buffer; none if there is another way."""
    found: dict[int, ComputeSet] = {}
    while True:
        writers = rewriter.uses.writers(buffer)
        if buffer.kind != "arena" or buffer.permanent or len(writers) != 1 or writers[0] >= at:
            return {}
        if any(writers[0] < mark.position <= at for mark in rewriter.program.marks):
            return {}
        work = rewriter.sets[writers[0]].work
        if isinstance(work, Contraction):
            return found if work.splits > 1 else {}
        cut = along_columns(rewriter.sets[writers[0]], columns)
        if cut is None or columns.grain % LINE or (found and rewriter.uses.readers(buffer) != [at]):
            return {}
        read = [s.buffer for s in cut.reads if s.partition is not None]
        if len(read) != 1:
            return {}
        at, buffer = writers[0], read[0]
        found[at] = cut


def along_columns(compute_set: ComputeSet, columns: Partition) -> ComputeSet | None:
    """Elementwise work, or sums of whole arrays, whose units have `columns` of a matrix instead; else None."""
    work, extent = compute_set.work, columns.extent
    if not isinstance(work, FusedLoop) or compute_set.one_worker or compute_set.claimed or compute_set.overwrites:
        return None
    spans = [*compute_set.reads, *compute_set.writes]
    if (
        work.record is not None
        or work.nest.splits_reduction
        or not all(_is_covered(s, compute_set.units) for s in spans)
    ):
        return None
    unfolded = _with_rows(work, extent)
    if unfolded is None or not all(unfolded.nest.reduced[:-2]) or any(unfolded.nest.reduced[-2:]):
        return None
    rows, points = unfolded.extents[-2], prod(unfolded.extents)
    dense = {s.buffer for s in spans if _is_dense(unfolded, s.buffer, rows, extent)}
    if points > MOST_POINTS or any(s.buffer not in dense for s in compute_set.writes):
        return None
    cut = replace(unfolded, nest=replace(unfolded.nest, partition=unfolded.nest.rank - 1), grain=columns.grain)
    reads, writes = (
        [replace(s, partition=columns if s.buffer in dense else None) for s in each]
        for each in (compute_set.reads, compute_set.writes)
    )
    return replace(compute_set, work=cut, units=cut.unit_count, reads=reads, writes=writes)


def _is_covered(span: Span, units: int) -> bool:
    """Whether the units have all of an array, together or each."""
    part = span.partition
    return span.slot is None and (part is None or part.grain * units >= part.extent)


def _with_rows(work: FusedLoop, extent: int) -> FusedLoop | None:
    """The work with loops over rows and columns last; None if its last loop is over something else."""
    last, nest = work.extents[-1], work.nest
    if last == extent and nest.rank > 1 and not nest.reduced[-2]:
        return work
    if last % extent or nest.reduced[-1]:
        return None
    operands = tuple(
        replace(each, strides=(*each.strides[:-1], each.strides[-1] * extent, each.strides[-1]))
        for each in work.operands
    )
    return replace(
        work,
        nest=replace(nest, reduced=(*nest.reduced, False)),
        extents=(*work.extents[:-1], last // extent, extent),
        operands=operands,
    )


def _is_dense(work: FusedLoop, buffer: Buffer, rows: int, columns: int) -> bool:
    """Whether the loops walk over all of an array, a matrix or several, row by row, and in no other way."""
    item, found = buffer.shape.dtype.itemsize, work.operands_at(buffer)
    if len(found) != 1 or found[0].address.offset or found[0].address.moved is not None:
        return False
    *leading, row, column = (prod(work.extents[k + 1 :]) * item for k in range(work.nest.rank))
    strides = found[0].strides
    if buffer.shape.elements == rows * columns and not any(strides[:-2]):
        leading = [0] * len(leading)
    elif buffer.shape.elements != prod(work.extents):
        return False
    return strides == (*leading, row, column)
