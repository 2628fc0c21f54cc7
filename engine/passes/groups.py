"""Groups of instructions that may become one codelet, and the test that joining two of them creates no cycle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from engine.ir import Computation, Instruction

MOST_MEMBERS = 256
"""Most instructions in a fusion. Chosen by hand."""


@dataclass(eq=False, slots=True)
class Group:
    """Members share `loops`; all reduces among them reduce the same loops. Sets of instructions are bit masks.

    `above` and `below` are ancestors and descendants of the members, by data alone.
    """

    loops: tuple[int, ...]
    reduced: tuple[bool, ...] | None
    members: int
    above: int
    below: int


class Groups:
    """All instructions of a computation as nodes of a graph that stays acyclic while groups grow."""

    def __init__(self, computation: Computation) -> None:
        self.instructions = computation.instructions
        self.position = {instruction: k for k, instruction in enumerate(self.instructions)}
        self.above = ancestors(computation)
        self.below = self._descendants()
        self.of: dict[Instruction, Group] = {}
        self._several: dict[Group, None] = {}
        self._in_several = 0
        """The members of groups of several instructions."""

    def _descendants(self) -> list[int]:
        below = [0] * len(self.instructions)
        for at in range(len(self.instructions) - 1, -1, -1):
            mask = below[at] | 1 << at
            for operand in self.instructions[at].operands:
                below[self.position[operand]] |= mask
        return below

    def start(self, instruction: Instruction, loops: tuple[int, ...], reduced: tuple[bool, ...] | None = None) -> Group:
        """Starts a group of one instruction."""
        at = self.position[instruction]
        group = Group(loops, reduced, 1 << at, self.above[at], self.below[at])
        self.of[instruction] = group
        return group

    def may_join(self, a: Group, b: Group) -> bool:
        """Whether two groups have the same loops and no third instruction is on a path between them."""
        if a is b or a.loops != b.loops:
            return False
        if a.reduced and b.reduced and a.reduced != b.reduced:
            return False
        if (a.members | b.members).bit_count() > MOST_MEMBERS:
            return False
        return not self._leads(a, b) and not self._leads(b, a)

    def _leads(self, start: Group, goal: Group) -> bool:
        """Whether there is a path from one group to another through instructions outside both.

        Paths by data alone are found at once; others go through other groups, whose members all depend on each other.
        """
        outside = ~(start.members | goal.members)
        reached, wanted = start.below & outside, goal.above & outside
        if reached & wanted:
            return True
        # Such a path leaves `start` into a group, and enters `goal` from one.
        if not (reached & self._in_several and wanted & self._in_several):
            return False
        others = [g for g in self._several if g is not start and g is not goal]
        while True:
            met = [g for g in others if g.members & reached]
            if not met:
                return False
            for group in met:
                reached |= group.below | group.members
            if reached & goal.members or reached & wanted:
                return True
            left = ~reached
            others = [g for g in others if g.members & left]

    def absorb(self, instruction: Instruction, group: Group) -> None:
        """Adds an instruction all of whose users are in the group: nothing new becomes reachable."""
        at = self.position[instruction]
        group.members |= 1 << at
        group.above |= self.above[at]
        group.below |= self.below[at]
        self.of[instruction] = group
        self._several[group] = None
        self._in_several |= group.members

    def join(self, a: Group, b: Group) -> Group:
        """Merges b into a."""
        for at in bits(b.members):
            self.of[self.instructions[at]] = a
        a.members |= b.members
        a.reduced = a.reduced or b.reduced
        a.above |= b.above
        a.below |= b.below
        self._several.pop(b, None)
        self._several[a] = None
        self._in_several |= a.members
        return a

    def members(self, group: Group) -> list[Instruction]:
        """The members in the computation's order."""
        return [self.instructions[at] for at in bits(group.members)]

    def __iter__(self) -> Iterator[Group]:
        return iter(dict.fromkeys(self.of.values()))


def ancestors(computation: Computation) -> list[int]:
    """Of each instruction, by position, the positions of those it depends on, as bits."""
    position = {instruction: k for k, instruction in enumerate(computation.instructions)}
    above: list[int] = []
    for instruction in computation.instructions:
        mask = 0
        for operand in instruction.operands:
            at = position[operand]
            mask |= above[at] | 1 << at
        above.append(mask)
    return above


def bits(mask: int) -> Iterator[int]:
    """The indices of the one bits, lowest first."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest
