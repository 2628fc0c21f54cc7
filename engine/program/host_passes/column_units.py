"""Products of few rows in units of columns: each worker then packs only its own columns of a large right operand.

In units of rows every worker packs all of it, which for few rows takes long beside their multiply-adds. For the host
only: a chip's tiles hold what they read.
"""

from __future__ import annotations

from dataclasses import replace

from engine.machine_code.costs import costs
from engine.program.program import ComputeSet, Partition, Program
from engine.program.work.contraction import Contraction, Grid

PANEL = 64
"""Columns of a unit, a multiple of all panels' widths."""
MOST_ROWS = 383
"""Most rows of all units together: beside more, packing takes little time, and their blocks of A fill the cache."""
LEAST_SHARE = 1 / 2
"""Of a worker's cache: a smaller right operand is read as fast by all workers."""


def cut_columns(program: Program) -> Program:
    """Cuts products of few rows along columns instead, where that leaves less to be packed; results are the same."""
    sets = [_in_columns(each) if _pays(each) else each for each in program.compute_sets]
    return replace(program, compute_sets=sets) if sets != program.compute_sets else program


def _pays(product: ComputeSet) -> bool:
    """Whether all of B is packed for several units, and is larger than A."""
    work = product.work
    if not isinstance(work, Contraction) or not work.is_float32 or product.one_worker or product.overwrites:
        return False
    batches, rows, columns, k = work.size
    if batches > 1 or work.splits > 1 or rows > MOST_ROWS or work.grid.rows >= rows or work.grid.columns < columns:
        return False
    # As even as rows for two workers, and in whole panels, so that sums over k have the same order.
    even = columns > rows and columns % (2 * PANEL) == 0
    dense = product.writes[0].partition == Partition(columns, rows, work.grid.rows)
    return even and dense and 4 * columns * k >= LEAST_SHARE * costs().cache_bytes


def _in_columns(product: ComputeSet) -> ComputeSet:
    work = product.work
    assert isinstance(work, Contraction)
    _, rows, columns, k = work.size
    return replace(
        product,
        work=replace(work, grid=Grid(rows, PANEL, k)),
        units=columns // PANEL,
        reads=[replace(span, partition=None) for span in product.reads],
        writes=[replace(product.writes[0], partition=Partition(1, columns, PANEL))],
    )
