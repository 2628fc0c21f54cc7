"""Units in equal parts, so that many workers have even loads: their ranges may end inside of a unit of the program.

The program's units are few, as a chip's tiles and partial sums count them. Codelets run a range of units as one, and
where each result is computed in the same way in any range, smaller units cost nothing. For the host only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import gcd, lcm, prod
from typing import Any, NamedTuple

import numpy as np

from engine.host.convolutions.winograd_work import WinogradProduct
from engine.host.unit_chain import UnitChain
from engine.ir.shape import Shape
from engine.program.program import ComputeSet, Partition, Program, Span
from engine.program.rewriter import with_each
from engine.program.units import LANE_GRAIN
from engine.program.work.base import Work
from engine.program.work.contraction import Contraction
from engine.program.work.copy import Copy
from engine.program.work.fused_loop import FusedLoop, WindowLoop
from engine.program.work.offsets import GROUP, rows_together

WANTED = 640
"""Units with which loads are even: the busiest of 64 workers has at most a tenth more than the mean."""
LEAST_WORK = 512
"""Fewest elements and multiply-adds of a part."""
CHEAP = 64 * LEAST_WORK
"""Elements and multiply-adds below which few workers are enough."""
LEAST_ROWS = 4
"""Fewest rows of a part, in products as in the loops around them: ranges of the same rows need no sync."""
LARGE = 1 << 22
"""Multiply-adds from which on blocks of columns are divided: syncs see no slices of an array in their parts."""


class UnitSlices(NamedTuple):
    """The slices of a unit along its loop, of which equal parts consist, and the most parts."""

    number: int
    most: int


WHOLE = UnitSlices(1, 1)


def divide_units(program: Program) -> Program:
    """Divides the units of compute sets with fewer than WANTED; results are the same."""
    return with_each(program, _divided)


def _divided(each: ComputeSet) -> ComputeSet:
    slices = _slices(each.work)
    if not 1 < each.units < WANTED or slices.number == 1 or each.one_worker or each.once:
        return each
    if each.work_estimate.total < CHEAP:
        return each
    found = [slices, *_of_spans([span.partition for span in (*each.reads, *each.writes) if span.partition], each.work)]
    count, least_work = gcd(*(one.number for one in found)), each.units * LEAST_WORK
    most = min(count, each.work_estimate.total // least_work, *(one.most for one in found))
    fitting = [parts for parts in range(1, most + 1) if count % parts == 0]
    parts = next((parts for parts in fitting if parts * each.units >= WANTED), max(fitting, default=1))
    if parts == 1:
        return each
    work = _in_parts(each.work, parts)
    reads, writes = ([_span_in_parts(span, parts, each.work) for span in spans] for spans in (each.reads, each.writes))
    return replace(each, work=work, units=work.unit_count, reads=reads, writes=writes)


def _of_spans(partitions: list[Partition], work: Work) -> list[UnitSlices]:
    """The slices of a unit in each array: elements in whole vectors and cache lines, unless there are rows."""
    if isinstance(work, Contraction) and _has_whole_rows(work):
        return []
    are_rows = any(each.inner > 1 for each in partitions)
    return [
        UnitSlices(each.grain // LANE_GRAIN, each.grain)
        if not are_rows and each.grain % LANE_GRAIN == 0
        else UnitSlices(each.grain, each.grain // LEAST_ROWS)
        for each in partitions
    ]


def _span_in_parts(span: Span, parts: int, work: Work) -> Span:
    blocks = span.partition
    if blocks is None:
        return span
    if not isinstance(work, Contraction) or not _has_whole_rows(work):
        return replace(span, partition=replace(blocks, grain=blocks.grain // parts))
    if work.splits == 1:
        return replace(span, partition=None)  # a part of a block of columns
    return replace(span, partition=replace(blocks, inner=blocks.inner // parts, extent=blocks.extent * parts))


def _has_whole_rows(product: Contraction) -> bool:
    """Whether units are blocks of k or of columns, whose parts have some of the rows."""
    return product.splits > 1 or product.grid.columns < product.columns


def _slices(work: Work) -> UnitSlices:
    """The slices of a unit; WHOLE if it must not be divided."""
    return next((slices(work) for kind, slices in SLICES.items() if type(work) is kind), WHOLE)


def _of_loop(loop: FusedLoop) -> UnitSlices:
    nest = loop.nest
    whole = nest.splits_reduction or nest.exceptions or (nest.period and nest.partition)
    return WHOLE if whole else UnitSlices(loop.grain, loop.grain // LEAST_ROWS)


def _of_product(product: Contraction) -> UnitSlices:
    """Rows, whose sums are the same in any block of rows; whole groups where these are packed."""
    (batches, rows, columns, _), grain = product.size, product.grid.rows
    if product.depthwise or product.bf16x3 or product.next_unit or batches > 1:
        return WHOLE
    if _has_whole_rows(product):
        dense = np.diff(product.row_c.table) == columns * Shape(product.result_type).dtype.itemsize
        in_columns = product.grid.columns < columns
        if in_columns and (product.splits > 1 or prod(product.size) < LARGE):
            return WHOLE
        if grain < rows or not bool(np.all(dense)):
            return WHOLE
    if rows_together(product.row_a.table, product.item_bytes) == GROUP:
        return WHOLE if grain % GROUP else UnitSlices(grain // GROUP, grain)
    return UnitSlices(grain, grain // LEAST_ROWS)


def _of_tiles(product: WinogradProduct) -> UnitSlices:
    """Whole rows of tiles."""
    rows, rest = divmod(product.unit_tiles, product.tiles[1])
    return WHOLE if rest else UnitSlices(rows, rows)


def _of_chain(chain: UnitChain) -> UnitSlices:
    """Slices of all links."""
    if any(isinstance(link.work, Contraction) and _has_whole_rows(link.work) for link in chain.links):
        return WHOLE
    links = [(link.ratio, _slices(link.work)) for link in chain.links]
    return UnitSlices(
        gcd(*(ratio * each.number for ratio, each in links)), min(ratio * each.most for ratio, each in links)
    )


SLICES: dict[type[Work], Callable[[Any], UnitSlices]] = {
    Contraction: _of_product,
    Copy: _of_loop,
    FusedLoop: _of_loop,
    UnitChain: _of_chain,
    WindowLoop: _of_loop,
    WinogradProduct: _of_tiles,
}


def _in_parts(work: Any, parts: int) -> Any:
    """The work with each unit in equal parts."""
    if isinstance(work, FusedLoop):
        return replace(work, grain=work.grain // parts)
    if isinstance(work, Contraction):
        return replace(work, grid=replace(work.grid, rows=work.grid.rows // parts))
    if isinstance(work, WinogradProduct):
        return replace(work, unit_tiles=work.unit_tiles // parts)
    links = []
    for link in work.links:
        cut = lcm(link.ratio, parts) // link.ratio
        divided = link if cut == 1 else replace(link, work=(made := _in_parts(link.work, cut)), units=made.unit_count)
        links.append(replace(divided, ratio=link.ratio * cut // parts))
    return replace(work, links=tuple(links), parts=parts)
