"""Barriers that workers need: before a compute set that touches what another worker wrote or reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise

from engine.program.program import Buffer, ComputeSet, Mark, Span

Ranges = list[tuple[int, int]]
Area = tuple[int, int]
"""Memory touched and memory written, as bits."""
Position = Callable[[Buffer], tuple[int, int]]
"""A buffer's first and last address (exclusive)."""


def ranges_of(compute_set: ComputeSet, workers: int) -> Ranges:
    """The units of each worker: always the same contiguous share, so that a tile's data stay in one cache.

    Of a claimed compute set a worker begins with this share, and others may have run parts of it.
    """
    units = compute_set.units
    if compute_set.one_worker:
        return [(0, units)] + [(units, units)] * (workers - 1)
    return [(-(-units * w // workers), -(-units * (w + 1) // workers)) for w in range(workers)]


class Sync(IntEnum):
    """What workers wait for before a compute set."""

    NONE = 0
    CLAIMED = 1  # the claimed compute sets since the last barrier
    BARRIER = 2  # all workers


@dataclass(frozen=True, slots=True)
class _Touch:
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


def free_marks(marks: Sequence[Mark]) -> set[Mark]:
    """The marks at which workers need not synchronise: all count the deciding iterations, and no step is left.

    A jump is free before the label of a branch known per iteration; a label, if all marks that lead there are, unless a
    loop begins there: a wait before the loop then is not repeated in each iteration.
    """
    per_iteration = {mark.label for mark in marks if mark.kind == "branch" and mark.known is not None}
    free = {
        mark
        for mark, after in zip(marks, [*marks, None][1:], strict=True)
        if (mark.kind == "branch" and mark.known is not None)
        or (mark.kind == "repeat" and not mark.when and not _has_branches_per_iteration(marks, mark))
        or (mark.kind == "jump" and after is not None and after.kind == "label" and after.label in per_iteration)
    }
    met = {mark.label for mark in marks if mark.kind == "repeat" or (mark.kind != "label" and mark not in free)}
    return free | {mark for mark in marks if mark.kind == "label" and mark.label not in met}


def _has_branches_per_iteration(marks: Sequence[Mark], repeat: Mark) -> bool:
    """Whether a loop has parts that not all iterations run: one barrier per iteration saves several in the parts."""
    begin = next(k for k, mark in enumerate(marks) if mark.kind == "label" and mark.label == repeat.label)
    return any(mark.known is not None for mark in marks[begin : marks.index(repeat)])


def syncs(
    compute_sets: Sequence[ComputeSet], workers: int, location: Position, marks: Sequence[Mark] = ()
) -> tuple[list[Sync], set[Mark]]:
    """For each compute set the sync that it needs before it, and the marks at which workers need not synchronise.

    Every step begins with a barrier of its own. Another one precedes a call of the host with claimed compute sets.
    """
    free = free_marks(marks)
    needed = [Sync.NONE] * len(compute_sets)
    if workers == 1:
        return needed, free
    for at, (each, following) in enumerate(pairwise(compute_sets)):
        if following.claimed and not each.claimed:
            needed[at] = Sync.BARRIER
    flow = _Flow(compute_sets, workers, location, marks, free)
    while not flow.run(needed):
        pass
    return needed, free


class _Flow:
    """Accesses that may have happened since the last sync, on every path through a program.

    Compute sets have their numbers, and `count` more for those of earlier iterations; marks that test predicates have
    negative ones.
    """

    def __init__(
        self,
        compute_sets: Sequence[ComputeSet],
        workers: int,
        location: Position,
        marks: Sequence[Mark],
        free: set[Mark],
    ) -> None:
        self.marks, self.free = marks, free
        self.count = len(compute_sets)
        self.claimed = frozenset(at for at, each in enumerate(compute_sets) if each.claimed)
        self.touches = {at: _touches(each, workers, location) for at, each in enumerate(compute_sets)}
        for number, mark in enumerate(marks):
            if mark.predicate is not None and mark.predicate.kind != "constant":
                by_all = [(0, 1)] * workers
                self.touches[-1 - number] = [_Touch(Span(mark.predicate), by_all, *location(mark.predicate), False)]
        self.labels = {mark.label: number for number, mark in enumerate(marks) if mark.kind == "label"}
        self.at: dict[int, list[int]] = {}
        for number, mark in enumerate(marks):
            self.at.setdefault(mark.position, []).append(number)
        self.areas = _areas(self.touches)
        self.conflicts: dict[tuple[int, int], bool] = {}
        self.going_on: dict[int, frozenset[int]] = {}
        self.going_back: dict[int, frozenset[int]] = {}

    def run(self, needed: list[Sync]) -> bool:
        """Goes through the program once, adding to the syncs; True at the fixed point."""
        returned, settled = self.going_back, True
        self.going_on, self.going_back = dict(returned), {}
        self.recent_areas = (0, 0)
        recent: frozenset[int] | None = frozenset()
        for at in range(len(needed) + 1):
            if at in self.at:
                for number in self.at[at]:
                    recent = self._pass(number, recent)
                self._sum_areas(recent or frozenset())
            if at == len(needed):
                break
            recent = recent or frozenset()
            conflicts = self._conflicts(recent, at) if needed[at] != Sync.BARRIER else set()
            sync = Sync.BARRIER if not self.claimed.issuperset({at, *conflicts}) else Sync.CLAIMED
            if conflicts and needed[at] < sync:
                needed[at], settled = sync, False
            if needed[at]:
                recent = frozenset() if needed[at] == Sync.BARRIER else recent - self.claimed
                self._sum_areas(recent)
            recent |= {at}
            self.recent_areas = _union(self.recent_areas, self.areas[at])
        return settled and returned == self.going_back

    def _pass(self, number: int, recent: frozenset[int] | None) -> frozenset[int] | None:
        """The recent accesses after a mark; None where it is unreachable."""
        mark = self.marks[number]
        if recent is not None and mark not in self.free:
            recent = frozenset()
        if mark.kind == "label":
            arriving = self.going_on.get(mark.label)
            return recent if arriving is None else arriving | (recent or frozenset())
        if mark.kind == "leave" or recent is None:
            return recent
        if -1 - number in self.touches:
            recent = frozenset([-1 - number])
        if mark.kind == "repeat":
            # Slots of an earlier iteration cannot be told from those of a later one.
            recent = frozenset(at if at < 0 else at % self.count + self.count for at in recent)
        ways = self.going_on if number < self.labels[mark.label] else self.going_back
        ways[mark.label] = ways.get(mark.label, frozenset()) | recent
        return None if mark.kind == "jump" else recent

    def _conflicts(self, recent: frozenset[int], new: int) -> set[int]:
        """The recent accesses that conflict with a compute set's. Most touch other memory."""
        areas, count = self.areas, self.count
        touched, written = areas[new]
        if not _overlap(self.recent_areas, (touched, written)):
            return set()
        # Written out: a long program without syncs comes here for each pair of its compute sets.
        return {
            old
            for old in recent
            if ((area := areas[old if old < count else old - count])[1] & touched or area[0] & written)
            and self._conflict(old, new)
        }

    def _area(self, number: int) -> Area:
        return self.areas[number if number < self.count else number - self.count]

    def _sum_areas(self, recent: frozenset[int]) -> None:
        self.recent_areas = (0, 0)
        for number in recent:
            self.recent_areas = _union(self.recent_areas, self._area(number))

    def _conflict(self, old: int, new: int) -> bool:
        if (old, new) not in self.conflicts:
            same_iteration = old < self.count
            before = self.touches[old if same_iteration else old - self.count]
            found = any(_conflict(one, other, same_iteration) for other in self.touches[new] for one in before)
            self.conflicts[old, new] = found
        return self.conflicts[old, new]


def _union(one: Area, other: Area) -> Area:
    return one[0] | other[0], one[1] | other[1]


def _overlap(old: Area, new: Area) -> bool:
    """Whether one of them writes memory that the other touches."""
    return bool(old[1] & new[0] or old[0] & new[1])


def _areas(touches: dict[int, list[_Touch]]) -> dict[int, Area]:
    """Memory touched and memory written at each number, as bits: one for each range between two ends of arrays."""
    ends = {
        end: k
        for k, end in enumerate(sorted({e for each in touches.values() for t in each for e in (t.start, t.stop)}))
    }
    areas = {}
    for number, each in touches.items():
        touched = written = 0
        for touch in each:
            area = (1 << ends[touch.stop]) - (1 << ends[touch.start])
            touched |= area
            written |= area if touch.writes else 0
        areas[number] = touched, written
    return areas


def _touches(compute_set: ComputeSet, workers: int, location: Position) -> list[_Touch]:
    ranges = [(0, compute_set.units)] * workers if compute_set.claimed else ranges_of(compute_set, workers)
    spans = [(s, False) for s in compute_set.reads] + [(s, True) for s in compute_set.writes]
    return [_Touch(s, ranges, *location(s.buffer), w) for s, w in spans if s.buffer.kind != "constant"]


def _conflict(old: _Touch, new: _Touch, same_iteration: bool) -> bool:
    if not (old.writes or new.writes) or old.stop <= new.start or new.stop <= old.start:
        return False
    if same_iteration and _in_other_slots(old.span, new.span):
        return False
    pairs = ((w, v) for w in range(len(old.ranges)) for v in range(len(new.ranges)) if w != v)
    return any(_synchronise(old, old.ranges[w], new, new.ranges[v]) for w, v in pairs)


def _synchronise(old: _Touch, mine: tuple[int, int], new: _Touch, others: tuple[int, int]) -> bool:
    """Whether the elements that some units touch in one compute set may overlap those of others in another."""
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
