"""Products of few rows in units of columns: each worker then packs only its own columns of a large right operand.

In units of rows every worker packs all of the operand, which takes long beside the multiply-adds of few rows. For the
host only: a chip's tiles hold their operands.
"""

from __future__ import annotations

from dataclasses import replace

from engine.machine_code.costs import costs
from engine.program.program import ComputeSet, Partition, Program
from engine.program.rewriter import with_each
from engine.program.work.contraction import Contraction, Grid

PANEL = 64
"""Units have one to WIDEST times as many columns, a multiple of all panels' widths."""
WIDEST = 4
MOST_UNEVEN = 1.03
"""Most columns of the busier one of two workers, as a multiple of half of all columns."""
MOST_ROWS = 383
"""Most rows of a product: with more, packing takes little of the time, and blocks of A fill the cache."""
LEAST_SHARE = 1 / 2
"""Share of a worker's cache from which a right operand is divided; all workers read smaller ones as fast."""


def cut_columns(program: Program) -> Program:
    """Divides products of few rows by columns where workers then pack less; results are the same."""
    return with_each(program, lambda each: _in_columns(each) if _pays(each) else each)


def _pays(product: ComputeSet) -> bool:
    """Whether all of B is packed for several units, and is larger than A."""
    work = product.work
    if not isinstance(work, Contraction) or not work.is_float32 or product.one_worker or product.overwrites:
        return False
    batches, rows, columns, k = work.size
    if batches > 1 or work.splits > 1 or rows > MOST_ROWS or work.grid.rows >= rows or work.grid.columns < columns:
        return False
    dense = [span.partition for span in product.writes] == [Partition(columns, rows, work.grid.rows)]
    large = columns > rows and 4 * columns * k >= LEAST_SHARE * costs().cache_bytes
    return dense and large and _width(columns) > 0


def _width(columns: int) -> int:
    """Chooses the columns of a unit so that two workers have almost equal shares, as with rows; 0 if no width does.

    No unit is narrower than a panel: it would be cut along k in another way, and have other bits.
    """
    for width in range(PANEL, WIDEST * PANEL + 1, PANEL):
        units = -(-columns // width)
        last = columns - (units - 1) * width
        if last >= PANEL and -(-units // 2) * width <= MOST_UNEVEN * columns / 2:
            return width
    return 0


def _in_columns(product: ComputeSet) -> ComputeSet:
    work = product.work
    assert isinstance(work, Contraction)
    _, rows, columns, k = work.size
    cut = replace(work, grid=Grid(rows, _width(columns), k))
    return replace(
        product,
        work=cut,
        units=cut.unit_count,
        reads=[replace(span, partition=None) for span in product.reads],
        writes=[replace(product.writes[0], partition=Partition(1, columns, cut.grid.columns))],
    )
