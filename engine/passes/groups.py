"""Groups of instructions that may become one codelet, and the test that joining two of them makes no cycle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from engine.ir import Computation, Instruction

MOST_MEMBERS = 256


@dataclass(eq=False, slots=True)
class Group:
    """Members share `loops`; all reduces among them reduce the same loops. Sets of instructions are bit masks."""

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
        self.above = self._ancestors()
        self.below = self._descendants()
        self.of: dict[Instruction, Group] = {}
        self._by_bit: dict[int, Group] = {}

    def _ancestors(self) -> list[int]:
        above: list[int] = []
        for instruction in self.instructions:
            mask = 0
            for operand in instruction.operands:
                at = self.position[operand]
                mask |= above[at] | 1 << at
            above.append(mask)
        return above

    def _descendants(self) -> list[int]:
        below = [0] * len(self.instructions)
        for at in range(len(self.instructions) - 1, -1, -1):
            mask = below[at] | 1 << at
            for operand in self.instructions[at].operands:
                below[self.position[operand]] |= mask
        return below

    def start(self, instruction: Instruction, loops: tuple[int, ...], reduced: tuple[bool, ...] | None = None) -> Group:
        """A group of one."""
        at = self.position[instruction]
        group = Group(loops, reduced, 1 << at, self.above[at], self.below[at])
        self.of[instruction] = group
        self._by_bit[at] = group
        return group

    def may_join(self, a: Group, b: Group) -> bool:
        """Whether two groups agree in their loops and no third instruction lies between them."""
        if a is b or a.loops != b.loops:
            return False
        if a.reduced and b.reduced and a.reduced != b.reduced:
            return False
        if (a.members | b.members).bit_count() > MOST_MEMBERS:
            return False
        outside = ~(a.members | b.members)
        return not (a.below & b.above & outside) and not (b.below & a.above & outside)

    def absorb(self, instruction: Instruction, group: Group) -> None:
        """Adds an instruction all of whose users are in the group: nothing new is reachable."""
        at = self.position[instruction]
        group.members |= 1 << at
        group.above |= self.above_now(at)
        self.of[instruction] = group
        self._by_bit[at] = group

    def join(self, a: Group, b: Group) -> Group:
        """Makes b part of a and tells everything above and below."""
        a.members |= b.members
        a.reduced = a.reduced or b.reduced
        a.above = (a.above | b.above) & ~a.members
        a.below = (a.below | b.below) & ~a.members
        for at in bits(b.members):
            self.of[self.instructions[at]] = a
            self._by_bit[at] = a
        for at in bits(a.below):
            self._add(at, "above", a.above | a.members)
        for at in bits(a.above):
            self._add(at, "below", a.below | a.members)
        return a

    def _add(self, at: int, direction: str, mask: int) -> None:
        group = self._by_bit.get(at)
        if group is not None:
            setattr(group, direction, getattr(group, direction) | mask)
        getattr(self, direction)[at] |= mask

    def above_now(self, at: int) -> int:
        group = self._by_bit.get(at)
        return self.above[at] | (group.above if group is not None else 0)

    def members(self, group: Group) -> list[Instruction]:
        """In the computation's order."""
        return [self.instructions[at] for at in bits(group.members)]

    def __iter__(self) -> Iterator[Group]:
        return iter(dict.fromkeys(self.of.values()))


def bits(mask: int) -> Iterator[int]:
    """The positions of the ones, lowest first."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest
