"""Division of a nest into units: the loop that is divided, and the size of slices, which do not depend on the host."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from engine.frozen import frozen
from engine.program.builder import RowBlocks
from engine.program.nests import Draft, Reached
from engine.program.program import Buffer, Partition
from engine.program.work.base import MOST_UNITS

SMALL = 4096
"""Points below which one unit runs them all: a sync costs as much as a few thousand points."""
LONGEST_SUM = 2048
"""Terms summed one after the other; longer sums are split, for accuracy as well as speed."""
LONGEST_LINE = 4096
"""Terms that each of 16 lanes sums, where there are enough lines: a softmax over up to 65,536 words is not split."""
LANE_GRAIN = 64
"""A unit's part of the last dimension is a multiple of this number of elements, for whole vectors and cache lines."""
SMALL_BYTES = 1 << 15
"""Bytes of a result of gathered or moved elements below which one worker does all the work."""
ENOUGH = 16
"""Iterations of a loop that divide into enough units."""
LINE = 64
"""Bytes of a cache line."""
LARGE = 1 << 17
"""Points from which on sums over rows are split: each unit has its own rows, as in the compute sets around it."""


@frozen
class UnitCut:
    """A collapsed draft, the loop that is divided into units, and the iterations (`grain`) of each unit."""

    draft: Draft
    loop: int
    grain: int

    @property
    def units(self) -> int:
        return max(1, -(-self.draft.extents[self.loop] // self.grain))


def cut(
    draft: Draft,
    sources: list[Buffer],
    results: list[Buffer],
    partitions: dict[Buffer, Partition],
    rows: RowBlocks | None = None,
) -> UnitCut:
    """Divides a nest along the rows of a loop's arrays; else by the partition of the largest array read; else
    evenly.
    """
    by_rows = None if rows is None else _by_rows(draft, sources, results, rows)
    if by_rows is not None and not _wants_split(by_rows.draft):
        return by_rows
    followed = _followed(draft, sources, partitions)
    if followed is not None and not _wants_split(followed.draft):
        return followed
    draft = collapsed(draft)
    points = prod(draft.extents)
    if _wants_split(draft):
        return _split(draft, points)
    if all(draft.reduced):
        draft = _with_parallel_loop(draft)
    loop = _widest_parallel(draft)
    extent = draft.extents[loop]
    if points <= SMALL or extent <= 1:
        return UnitCut(draft, loop, max(extent, 1))
    units = min(MOST_UNITS, max(2, points // SMALL), extent)
    grain = -(-extent // units)
    if loop == len(draft.extents) - 1:
        grain = -(-grain // LANE_GRAIN) * LANE_GRAIN
    return UnitCut(draft, loop, grain)


def _followed(draft: Draft, sources: list[Buffer], partitions: dict[Buffer, Partition]) -> UnitCut | None:
    reads = [(r, sources[r.source]) for r in draft.reached if r.source is not None and not r.writes]
    reads.sort(key=lambda read: -read[1].shape.elements)
    found = ((array, buffer, partitions.get(buffer)) for array, buffer in reads if array.offset == 0)
    return next(filter(None, (_along(draft, *each) for each in found)), None)


def _along(draft: Draft, array: Reached, buffer: Buffer, partition: Partition | None) -> UnitCut | None:
    """The cut along the partition of an array; None if no loop runs along it."""
    if partition is None:
        return None
    item = buffer.shape.dtype.itemsize
    kept = collapsed(draft, fences_for(draft, array, partition, item))
    loop = loop_of(kept, kept.reached[draft.reached.index(array)], partition, item)
    return None if loop is None else UnitCut(kept, loop, partition.grain)


def _by_rows(draft: Draft, sources: list[Buffer], results: list[Buffer], rows: RowBlocks) -> UnitCut | None:
    """The cut along the rows of an array that is written, or else read."""
    for writes in (True, False):
        for array in draft.reached:
            if array.source is not None and array.writes == writes:
                buffer = (results if writes else sources)[array.source]
                found = _along(draft, array, buffer, rows.partition(buffer.shape))
                if found is not None:
                    return found
    return None


def _widest_parallel(draft: Draft) -> int:
    """The outermost parallel loop that is long enough, else the longest one."""
    parallel = [d for d, reduced in enumerate(draft.reduced) if not reduced]
    for loop in parallel[:-1]:
        if draft.extents[loop] >= ENOUGH:
            return loop
    return max(parallel, key=lambda d: draft.extents[d])


def _with_parallel_loop(draft: Draft) -> Draft:
    """Adds a loop of one iteration: units need a loop that is not reduced."""
    reached = [replace(r, strides=(0, *r.strides)) for r in draft.reached]
    return replace(draft, extents=(1, *draft.extents), reduced=(False, *draft.reduced), reached=reached)


def _wants_split(draft: Draft) -> bool:
    """Whether the reduced loops must be split: too few results to partition, or sums too long."""
    if not any(draft.reduced) or any(not isinstance(r.combine, str) for r in draft.reductions):
        return False
    points = prod(draft.extents)
    terms = prod(e for e, reduced in zip(draft.extents, draft.reduced, strict=True) if reduced)
    lanes = 16 if draft.reduced[-1] else 1
    parallel = points // max(terms, 1)
    if terms // lanes > (LONGEST_LINE if lanes > 1 and parallel >= ENOUGH else LONGEST_SUM):
        return True
    if not draft.reduced[-1] and points >= LARGE and terms >= MOST_UNITS:
        return True
    return points > 4 * SMALL and parallel < 8 * (1 if draft.reduced[-1] else LANE_GRAIN)


def _split(draft: Draft, points: int) -> UnitCut:
    reduced = [d for d, is_reduced in enumerate(draft.reduced) if is_reduced]
    loop = max(reduced, key=lambda d: (draft.extents[d] >= ENOUGH and not _shares_lines(draft, d), draft.extents[d]))
    extent = draft.extents[loop]
    units = min(MOST_UNITS, max(2, points // SMALL), extent)
    return UnitCut(draft, loop, -(-extent // units))


def _shares_lines(draft: Draft, loop: int) -> bool:
    """Whether units along a loop read the same cache lines of a transposed array: each would read all of it."""
    return any(0 < abs(r.strides[loop]) < LINE <= abs(r.strides[-1]) for r in draft.reached if r.source is not None)


def collapsed(draft: Draft, fences: frozenset[int] = frozenset()) -> Draft:
    """The draft with loops merged; a fence k forbids merging loops k-1 and k."""
    keep = [0]
    for loop in range(1, len(draft.extents)):
        if loop in fences or not _mergeable(draft, loop):
            keep.append(loop)
    starts = [*keep, len(draft.extents)]
    extents, reduced = [], []
    for start, stop in zip(starts, starts[1:], strict=False):
        size = 1
        for loop in range(start, stop):
            size *= draft.extents[loop]
        extents.append(size)
        reduced.append(draft.reduced[start])
    lasts = [stop - 1 for stop in starts[1:]]
    reached = [replace(r, strides=tuple(r.strides[last] for last in lasts)) for r in draft.reached]
    return replace(draft, extents=tuple(extents), reduced=tuple(reduced), reached=reached)


def _mergeable(draft: Draft, loop: int) -> bool:
    if draft.reduced[loop - 1] != draft.reduced[loop]:
        return False
    extent = draft.extents[loop]
    return all(r.strides[loop - 1] == r.strides[loop] * extent for r in draft.reached)


def fences_for(draft: Draft, array: Reached, partition: Partition, item: int) -> frozenset[int]:
    """Loops that must not be merged with the one before, so that one of the loops is the partition of an array."""
    inner, outer = partition.inner * item, partition.inner * partition.extent * item
    fences = set()
    for loop in range(1, len(draft.extents)):
        before, after = array.strides[loop - 1], array.strides[loop]
        if before >= inner > after or before >= outer > after:
            fences.add(loop)
    return frozenset(fences)


def loop_of(draft: Draft, array: Reached, partition: Partition, item: int) -> int | None:
    """The parallel loop along which an array's partition runs; None if there is none."""
    for loop, extent in enumerate(draft.extents):
        if array.strides[loop] == partition.inner * item and extent == partition.extent:
            return None if draft.reduced[loop] else loop
    return None
