"""Where workers must wait for each other: before a compute set that touches what another worker wrote or reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.program.program import Buffer, ComputeSet, Mark, Span

Ranges = list[tuple[int, int]]
Place = Callable[[Buffer], tuple[int, int]]
"""A buffer's first and last address (exclusive)."""


def ranges_of(compute_set: ComputeSet, workers: int) -> Ranges:
    """The units of each worker: always the same neighbouring share, so that a tile's data stay in one cache."""
    units = compute_set.units
    if compute_set.one_worker:
        return [(0, units)] + [(units, units)] * (workers - 1)
    return [(-(-units * w // workers), -(-units * (w + 1) // workers)) for w in range(workers)]


@dataclass(frozen=True, slots=True)
class _Touch:
    span: Span
    ranges: Ranges
    start: int
    stop: int
    writes: bool


def meetings(marks: list[Mark]) -> dict[int, list[Buffer]]:
    """The compute sets before which workers meet because of marks, and the predicates that a slow one still tests."""
    free = free_repeats(marks)
    found: dict[int, list[Buffer]] = {mark.position: [] for mark in marks if mark not in free}
    positions = {mark.label: mark.position for mark in marks if mark.kind == "label"}
    for mark in marks:
        if mark.predicate is not None and mark.predicate.kind != "constant":
            found[mark.position].append(mark.predicate)
            found[positions[mark.label]].append(mark.predicate)
    return found


def free_repeats(marks: list[Mark]) -> dict[Mark, int]:
    """The ends of loops at which workers need not meet by themselves, and where these loops begin.

    In such a loop nothing else steers, and no step is left there.
    """
    pairs = zip(marks, marks[1:], strict=False)
    return {
        mark: label.position
        for label, mark in pairs
        if mark.kind == "repeat" and (label.kind, label.label) == ("label", mark.label) and not mark.when
    }


def meet_again(
    compute_sets: list[ComputeSet], waits: list[bool], loop: tuple[int, int], workers: int, place: Place
) -> bool:
    """Whether workers must meet between two turns of a loop, its compute sets being begin <= k < end.

    The end of one turn, from the last sync on, then touches what the beginning of the next does up to the first one.
    """
    begin, end = loop
    inside = [at for at in range(begin, end) if waits[at]]
    first, last = (inside[0], inside[-1]) if inside else (end, begin)
    head = [touch for each in compute_sets[begin:first] for touch in _touches(each, workers, place)]
    tail = [touch for each in compute_sets[last:end] for touch in _touches(each, workers, place)]
    return any(_conflict(old, new) for old in tail for new in head)


def syncs(
    compute_sets: list[ComputeSet], workers: int, place: Place, met: dict[int, list[Buffer]] | None = None
) -> list[bool]:
    """For each compute set whether a sync must come before it. Every step begins with a sync of its own.

    `met` has the compute sets before which all workers meet anyway, as `meetings` gives them.
    """
    if workers == 1:
        return [False] * len(compute_sets)
    needed: list[bool] = []
    recent: list[_Touch] = []
    for at, compute_set in enumerate(compute_sets):
        if met and at in met:
            recent = [_Touch(Span(p), [(0, 1)] * workers, *place(p), False) for p in met[at]]
        touches = _touches(compute_set, workers, place)
        wait = any(_conflict(old, new) for new in touches for old in recent)
        needed.append(wait)
        recent = touches if wait else recent + touches
    return needed


def _touches(compute_set: ComputeSet, workers: int, place: Place) -> list[_Touch]:
    ranges = ranges_of(compute_set, workers)
    spans = [(s, False) for s in compute_set.reads] + [(s, True) for s in compute_set.writes]
    return [_Touch(s, ranges, *place(s.buffer), w) for s, w in spans if s.buffer.kind != "constant"]


def _conflict(old: _Touch, new: _Touch) -> bool:
    if not (old.writes or new.writes) or old.stop <= new.start or new.stop <= old.start:
        return False
    a, b = old.span.partition, new.span.partition
    comparable = (
        old.span.buffer is new.span.buffer
        and a is not None
        and b is not None
        and (a.inner, a.extent) == (b.inner, b.extent)
    )
    for w, (lo, hi) in enumerate(old.ranges):
        for v, (start, stop) in enumerate(new.ranges):
            if w == v or lo >= hi or start >= stop:
                continue
            if not comparable:
                return True
            assert a is not None and b is not None
            if lo * a.grain < stop * b.grain and start * b.grain < hi * a.grain:
                return True
    return False
