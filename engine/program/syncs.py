"""Barriers for workers: one precedes each compute set that touches memory which another worker wrote or reads.

A touch is the memory that each worker's units of a compute set read or write. Touches since the last sync are kept by
memory: a compute set is compared only with touches of the memory it uses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from itertools import pairwise

from engine.frozen import frozen
from engine.program.program import Buffer, ComputeSet, Mark, Span

Ranges = list[tuple[int, int]]
Place = tuple[int, int]
"""First and last address (exclusive)."""
Position = Callable[[Buffer], Place]
"""The place of a buffer."""
ByPlace = dict[Place, set[int]]
"""Kinds of touches by place: a kind's number, or the number's complement for touches in an earlier iteration."""


@frozen
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


class RecentTouches:
    """Touches that may have happened since the last sync, those of `claimed` compute sets apart.

    Touches of one kind have the same place and units, and conflict with the same touches: one of each kind is kept.
    `recent` are the accesses that they are from: an access has the number of its compute set, plus `count` in an
    earlier iteration. A mark that tests a predicate has a negative number.
    """

    def __init__(self, touches: Mapping[int, list[Touch]], claimed: frozenset[int], count: int) -> None:
        """`touches` has the touches of each compute set or mark, by number."""
        self.claimed, self.count = claimed, count
        self._kinds: list[Touch] = []
        self._places: list[Place] = []
        self._kinds_of = self._numbered(touches)
        self._beside = overlapping(sorted(set(self._places)))
        self._conflicts: dict[tuple[int, int], bool] = {}
        self.clear()

    def _numbered(self, touches: Mapping[int, list[Touch]]) -> dict[int, list[int]]:
        """The kinds of the touches by number, without touches of no bytes."""
        numbers: dict[tuple[object, ...], int] = {}
        found: dict[int, list[int]] = {}
        for number, each in touches.items():
            kinds: dict[int, None] = {}
            for touch in each:
                if touch.start == touch.stop:
                    continue
                span = touch.span
                key = span.buffer, span.partition, id(span.slot), *touch.ranges, touch.writes
                kind = numbers.setdefault(key, len(numbers))
                if kind == len(self._kinds):
                    self._kinds.append(touch)
                    self._places.append((touch.start, touch.stop))
                kinds[kind] = None
            found[number] = list(kinds)
        return found

    def clear(self) -> None:
        """Forgets all touches: all workers have synchronised."""
        self.recent: set[int] = set()
        self._read: tuple[ByPlace, ByPlace] = ({}, {})
        self._written: tuple[ByPlace, ByPlace] = ({}, {})

    def forget_claimed(self) -> None:
        """Forgets the touches of claimed compute sets."""
        self.recent -= self.claimed
        self._read[1].clear()
        self._written[1].clear()

    def add(self, access: int) -> None:
        """Adds the touches of an access."""
        self.recent.add(access)
        claimed, same_iteration = access in self.claimed, access < self.count
        read, written = self._read[claimed], self._written[claimed]
        for kind in self._kinds_of[access % self.count if access > 0 else access]:
            recent, place = written if self._kinds[kind].writes else read, self._places[kind]
            if place not in recent:
                recent[place] = set()
            recent[place].add(kind if same_iteration else ~kind)

    def conflicts(self, number: int, claimed: bool) -> bool:
        """Whether a compute set conflicts with touches of claimed compute sets (`claimed`), or of all others."""
        read, written = self._read[claimed], self._written[claimed]
        for kind in self._kinds_of[number] if read or written else ():
            beside = self._beside[self._places[kind]]
            # Looks through the fewer of recent and overlapping places.
            if not written.keys().isdisjoint(beside) and self._has_conflict(written, beside, kind):
                return True
            if self._kinds[kind].writes and not read.keys().isdisjoint(beside):
                if self._has_conflict(read, beside, kind):
                    return True
        return False

    def _has_conflict(self, recent: ByPlace, beside: set[Place], kind: int) -> bool:
        return any(self._conflict(old, kind) for place in recent.keys() & beside for old in recent[place])

    def _conflict(self, old: int, new: int) -> bool:
        if (old, new) not in self._conflicts:
            same_iteration = old >= 0
            before = self._kinds[old if same_iteration else ~old]
            self._conflicts[old, new] = conflict(before, self._kinds[new], same_iteration)
        return self._conflicts[old, new]


def overlapping(places: Iterable[Place]) -> dict[Place, set[Place]]:
    """Maps each of the sorted, distinct places to the set of places that share bytes with it, itself included."""
    found: dict[Place, set[Place]] = {}
    open_places: list[Place] = []
    for place in places:
        start = place[0]
        open_places = [each for each in open_places if each[1] > start]
        for each in open_places:
            found[each].add(place)
        open_places.append(place)
        found[place] = set(open_places)
    return found


def ranges_of(compute_set: ComputeSet, workers: int) -> Ranges:
    """The units of each worker: always the same contiguous share, so that a tile's data stay in one cache.

    A worker begins a claimed compute set with this share, parts of which other workers may have run.
    """
    units = compute_set.units
    if compute_set.one_worker:
        return [(0, units)] + [(units, units)] * (workers - 1)
    if units < workers:  # no unit is a shorter last one of several
        return [(-(-units * w // workers), -(-units * (w + 1) // workers)) for w in range(workers)]
    # The last unit is often a shorter one, so the last workers have one more where units do not divide.
    return [(units * w // workers, units * (w + 1) // workers) for w in range(workers)]


class Sync(IntEnum):
    """The threads that workers wait for before a compute set."""

    NONE = 0
    CLAIMED = 1  # the claimed compute sets since the last barrier
    BARRIER = 2  # all workers


def free_marks(marks: Sequence[Mark]) -> set[Mark]:
    """The marks at which workers need not synchronise: each worker counts the deciding iterations, and no step ends.

    A jump is free if the label of a branch known per iteration follows. A label is free if all marks that lead there
    are free and no loop begins there: at a loop, one wait before it saves one in each iteration.
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
    """The sync that each compute set needs before it, and the marks at which workers need not synchronise.

    Every step begins with a barrier of its own. Another one precedes each call of the host that claimed compute sets
    follow.
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
    """Accesses that may have happened since the last sync, on every path through a program."""

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
        claimed = frozenset(at for at, each in enumerate(compute_sets) if each.claimed)
        # Each worker may run all units of a claimed compute set.
        ranges = ([(0, s.units)] * workers if s.claimed else ranges_of(s, workers) for s in compute_sets)
        touched = (touches_of(*pair, location) for pair in zip(compute_sets, ranges, strict=True))
        touches = dict(enumerate(touched))
        for number, mark in enumerate(marks):
            if mark.predicate is not None and mark.predicate.kind != "constant":
                by_all = [(0, 1)] * workers
                touches[-1 - number] = [Touch(Span(mark.predicate), by_all, *location(mark.predicate), False)]
        self.labels = {mark.label: number for number, mark in enumerate(marks) if mark.kind == "label"}
        self.at: dict[int, list[int]] = {}
        for number, mark in enumerate(marks):
            self.at.setdefault(mark.position, []).append(number)
        self.testing = {number for number in touches if number < 0}
        self.touches = RecentTouches(touches, claimed, self.count)
        self.going_on: dict[int, frozenset[int]] = {}
        self.going_back: dict[int, frozenset[int]] = {}

    def run(self, needed: list[Sync]) -> bool:
        """Goes through the program once and adds to the syncs; returns True at the fixed point.

        At the fixed point the same accesses come back from iterations as before. Syncs added on the way count at once.
        """
        returned = self.going_back
        self.going_on, self.going_back = dict(returned), {}
        self.touches.clear()
        for at in range(len(needed) + 1):
            if at in self.at:
                self._after_marks(at)
            if at == len(needed):
                break
            if needed[at] != Sync.BARRIER:
                needed[at] = max(needed[at], self._sync_before(at))
            if needed[at] == Sync.BARRIER:
                self.touches.clear()
            elif needed[at] == Sync.CLAIMED:
                self.touches.forget_claimed()
            self.touches.add(at)
        return returned == self.going_back

    def _sync_before(self, at: int) -> Sync:
        """The sync that a compute set's conflicts with the recent accesses require."""
        if self.touches.conflicts(at, claimed=False):
            return Sync.BARRIER
        if not self.touches.conflicts(at, claimed=True):
            return Sync.NONE
        return Sync.CLAIMED if at in self.touches.claimed else Sync.BARRIER

    def _after_marks(self, at: int) -> None:
        """Takes the recent accesses past all marks at a position."""
        after: frozenset[int] | None = frozenset(self.touches.recent)
        for number in self.at[at]:
            after = self._pass(number, after)
        self.touches.clear()
        for each in after or ():
            self.touches.add(each)

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
        if -1 - number in self.testing:
            recent = frozenset([-1 - number])
        if mark.kind == "repeat":
            # Slots of an earlier iteration look like those of a later one.
            recent = frozenset(at if at < 0 else at % self.count + self.count for at in recent)
        ways = self.going_on if number < self.labels[mark.label] else self.going_back
        ways[mark.label] = ways.get(mark.label, frozenset()) | recent
        return None if mark.kind == "jump" else recent
