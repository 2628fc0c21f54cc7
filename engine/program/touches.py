"""Touches: the memory that each worker's units of a compute set read or write, and which of them conflict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.program.program import Buffer, ComputeSet, Span

Ranges = list[tuple[int, int]]
Position = Callable[[Buffer], tuple[int, int]]
"""A buffer's first and last address (exclusive)."""


@dataclass(frozen=True, slots=True)
class Touch:
    """A span of a compute set between two addresses; `ranges` has the units of each worker."""

    span: Span
    ranges: Ranges
    start: int
    stop: int
    writes: bool

    def bytes_of(self, lo: int, hi: int) -> tuple[int, int]:
        """The address range that units lo <= u < hi touch; two arrays may have used the same memory in succession."""
        partition, shape = self.span.partition, self.span.buffer.shape
        if partition is None or partition.inner * partition.extent != shape.elements:
            return self.start, self.stop
        block = partition.inner * partition.grain * shape.dtype.itemsize
        return self.start + lo * block, min(self.start + hi * block, self.stop)


def touches_of(compute_set: ComputeSet, ranges: Ranges, location: Position) -> list[Touch]:
    """The touches of a compute set whose workers run the units in `ranges`; constants are never written."""
    spans = [(s, False) for s in compute_set.reads] + [(s, True) for s in compute_set.writes]
    return [Touch(s, ranges, *location(s.buffer), w) for s, w in spans if s.buffer.kind != "constant"]


def conflict(old: Touch, new: Touch, same_iteration: bool) -> bool:
    """Whether one worker may write memory that another touches, unless they synchronise between the two."""
    if not (old.writes or new.writes) or old.stop <= new.start or new.stop <= old.start:
        return False
    if same_iteration and _in_other_slots(old.span, new.span):
        return False
    pairs = ((w, v) for w in range(len(old.ranges)) for v in range(len(new.ranges)) if w != v)
    return any(_synchronise(old, old.ranges[w], new, new.ranges[v]) for w, v in pairs)


def _synchronise(old: Touch, mine: tuple[int, int], new: Touch, others: tuple[int, int]) -> bool:
    """Whether elements that units `mine` touch in one compute set may overlap those of units `others` in another."""
    (lo, hi), (start, stop) = mine, others
    if lo >= hi or start >= stop:
        return False
    a, b = old.span.partition, new.span.partition
    if a is not None and b is not None and old.span.buffer is new.span.buffer:
        if (a.inner, a.extent) == (b.inner, b.extent):
            return lo * a.grain < stop * b.grain and start * b.grain < hi * a.grain
    begin, end = old.bytes_of(lo, hi)
    first, last = new.bytes_of(start, stop)
    return begin < last and first < end


def _in_other_slots(old: Span, new: Span) -> bool:
    """Whether two compute sets use different slots of a buffer in each iteration that has both."""
    a, b = old.slot, new.slot
    if old.buffer is not new.buffer or a is None or b is None or a.begin.counter != b.begin.counter:
        return False
    pairs = zip(a.begin.values, b.begin.values, strict=False)
    return all(min(one, other) < 0 or one + a.bytes <= other or other + b.bytes <= one for one, other in pairs)
