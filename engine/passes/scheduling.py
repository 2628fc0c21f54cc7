"""The scheduling algorithms of `IPUConfig.scheduling`: orders of the instructions that take memory.

Each takes the reads of the instructions and the instructions that must run before each (engine/passes/order.py), and
returns an order in which the needs of every instruction precede it. CHOOSE_BEST compares several and is in order.py.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice

from engine.ir import Instruction
from engine.ir.module import needs_first
from engine.passes.liveness import LiveStorage

Needs = Mapping[Instruction, tuple[Instruction, ...]]


def post_order(storage: LiveStorage, needs: Needs) -> list[Instruction]:
    """Goes depth first from the last instructions: each runs right after the last of its needs."""
    order: dict[Instruction, None] = {}
    followers = followers_of(needs)
    for end in (instruction for instruction in needs if not followers[instruction]):
        for each in needs_first(end, lambda instruction: needs[instruction][::-1], order):
            order[each] = None
    return list(order)


def shortest_path(storage: LiveStorage, needs: Needs) -> list[Instruction]:
    """Always runs the ready instruction with the fewest others on a path from it to an end of the program."""
    distance: dict[Instruction, int] = {}
    for instruction in reversed(post_order(storage, needs)):
        distance.setdefault(instruction, 0)
        for need in needs[instruction]:
            distance[need] = min(distance.get(need, distance[instruction] + 1), distance[instruction] + 1)
    return by_priority(needs, lambda instruction: distance[instruction])


def clustering(storage: LiveStorage, needs: Needs) -> list[Instruction]:
    """Never interrupts chains in which each instruction is the only reader of the previous one.

    Running an instruction of a chain makes at most the next one of it ready, so the chain keeps the least number.
    """
    followers = followers_of(needs)
    cluster: dict[Instruction, int] = {}
    for number, instruction in enumerate(post_order(storage, needs)):
        alone = [need for need in needs[instruction] if len(followers[need]) == 1]
        cluster[instruction] = cluster[alone[-1]] if alone else number
    return by_priority(needs, cluster.__getitem__)


def look_ahead(storage: LiveStorage, needs: Needs, depth: int, space: int) -> list[Instruction]:
    """Always runs the instruction that begins the best of up to `space` orders of the next `depth` + 1 instructions.

    The best order has the fewest live bytes at its peak, and among equals at its end.
    """
    state = _ScheduleState(storage, needs)
    while state.ready:
        sequences = islice(state.sequences(max(0, depth) + 1), max(1, space))
        state.run(min(sequences, key=lambda sequence: state.bytes_of(sequence))[0])
    return state.order


class _ScheduleState:
    """Instructions that have run, that are ready, and the numbers of remaining readers."""

    def __init__(self, storage: LiveStorage, needs: Needs) -> None:
        self.storage, self.followers = storage, followers_of(needs)
        self.missing = {instruction: len(needed) for instruction, needed in needs.items()}
        self.unread = {instruction: len(readers) for instruction, readers in storage.readers.items()}
        self.ready = {instruction: None for instruction in needs if not self.missing[instruction]}
        self.order: list[Instruction] = []

    def run(self, instruction: Instruction) -> None:
        del self.ready[instruction]
        self.order.append(instruction)
        for source in self.storage.reads[instruction]:
            self.unread[source] -= 1
        for follower in self.followers[instruction]:
            self.missing[follower] -= 1
            if not self.missing[follower]:
                self.ready[follower] = None

    def sequences(self, length: int) -> Iterator[tuple[Instruction, ...]]:
        """Orders of the next instructions: each ready one first, then others in the given order; then by pairs."""
        for first in list(self.ready):
            yield self._continued((first,), length)
        for first in list(self.ready):
            for second in self._ready_after((first,))[1:]:
                yield self._continued((first, second), length)

    def _continued(self, begun: tuple[Instruction, ...], length: int) -> tuple[Instruction, ...]:
        while len(begun) < length:
            ready = self._ready_after(begun)
            if not ready:
                break
            begun = (*begun, ready[0])
        return begun[:length]

    def _ready_after(self, begun: tuple[Instruction, ...]) -> list[Instruction]:
        """The instructions ready after `begun` has run: those it made ready first."""
        done: dict[Instruction, int] = {}
        for instruction in begun:
            for follower in self.followers[instruction]:
                done[follower] = done.get(follower, 0) + 1
        new = [each for each, count in done.items() if self.missing[each] == count and each not in begun]
        return new + [each for each in islice(self.ready, len(begun) + 2) if each not in begun]

    def bytes_of(self, sequence: tuple[Instruction, ...]) -> tuple[int, int]:
        """Bytes above the present ones, at the peak and at the end."""
        alive = worst = 0
        read: dict[Instruction, int] = {}
        for instruction in sequence:
            alive += self.storage.bytes[instruction]
            worst = max(worst, alive)
            for source in self.storage.reads[instruction]:
                read[source] = read.get(source, 0) + 1
                if read[source] == self.unread[source] and source not in self.storage.kept:
                    alive -= self.storage.bytes[source]
            if not self.unread[instruction] and instruction not in self.storage.kept:
                alive -= self.storage.bytes[instruction]
        return worst, alive


def followers_of(needs: Needs) -> dict[Instruction, list[Instruction]]:
    """Inverts the dependencies: maps each instruction to those that need it."""
    followers: dict[Instruction, list[Instruction]] = {instruction: [] for instruction in needs}
    for instruction, needed in needs.items():
        for each in needed:
            followers[each].append(instruction)
    return followers


def by_priority(
    needs: Needs,
    priority: Callable[[Instruction], int],
    preferred_after: Callable[[Instruction], Iterable[Instruction]] = lambda instruction: (),
) -> list[Instruction]:
    """Always runs the ready instruction of the least priority; among equals, the first in the given order.

    `preferred_after` has the instructions whose priority is less once an instruction has run.
    """
    numbers = {instruction: number for number, instruction in enumerate(needs)}
    instructions, followers = list(needs), followers_of(needs)
    missing = {instruction: len(needed) for instruction, needed in needs.items()}
    ready = [(priority(each), numbers[each]) for each in needs if not missing[each]]
    heapq.heapify(ready)
    order: dict[Instruction, None] = {}
    while ready:
        instruction = instructions[heapq.heappop(ready)[1]]
        if instruction in order:
            continue
        order[instruction] = None
        for follower in followers[instruction]:
            missing[follower] -= 1
        for each in (*preferred_after(instruction), *followers[instruction]):
            if not missing[each]:
                heapq.heappush(ready, (priority(each), numbers[each]))
    return list(order)
