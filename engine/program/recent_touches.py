"""The touches since the last sync, by memory: a compute set is compared only with touches of the memory it uses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from engine.program.touches import Touch, conflict

Place = tuple[int, int]
"""First and last address (exclusive)."""
ByPlace = dict[Place, set[int]]
"""Kinds of touches by place: a kind's number, or the number's complement for touches in an earlier iteration."""


class RecentTouches:
    """Touches that may have happened since the last sync, claimed ones apart.

    Touches of one kind have the same place and units, and conflict with the same touches: one of each kind is kept.
    """

    def __init__(self, touches: Mapping[int, list[Touch]]) -> None:
        """`touches` has the touches of each compute set or mark, by number."""
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
        self._read: tuple[ByPlace, ByPlace] = ({}, {})
        self._written: tuple[ByPlace, ByPlace] = ({}, {})

    def forget_claimed(self) -> None:
        """Forgets the touches of claimed compute sets."""
        self._read[1].clear()
        self._written[1].clear()

    def add(self, number: int, claimed: bool, same_iteration: bool = True) -> None:
        """Adds the touches of a compute set or mark."""
        read, written = self._read[claimed], self._written[claimed]
        for kind in self._kinds_of[number]:
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
