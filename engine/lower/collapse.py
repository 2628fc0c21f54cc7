"""Fewer, longer loops: neighbouring loops that every array traverses as one are merged."""

from __future__ import annotations

from dataclasses import replace

from engine.lower.nests import Draft, Reached
from engine.program.program import Partition


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
