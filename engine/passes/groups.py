"""Groups of instructions that may become one codelet, and the test that joining two of them creates no cycle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from engine.ir import Computation, Instruction
from engine.ir.opcodes import OPCODES
from engine.ir.shape import COMPLEX

MOST_MEMBERS = 256
"""Most instructions in a fusion."""
MOST_CODE = 512
"""Most code of a fusion, in additions: LLVM's time grows faster than the length of a loop's body."""
CODE_OF_COMPLEX = 4
WINDOW = 1 << 15
"""Number of instructions in a window, in which groups are made: the masks of n instructions have n * n bits."""


@dataclass(eq=False, slots=True)
class Group:
    """Members share `loops`; all reduces among them reduce the same loops. Sets of instructions are bit masks.

    `above` and `below` are ancestors and descendants of the members, by data alone. `code` is the length of their
    machine code, in additions; bit 0 of the masks is instruction number `begin`.
    """

    loops: tuple[int, ...]
    reduced: tuple[bool, ...] | None
    begin: int
    members: int
    above: int
    below: int
    code: int


class Groups:
    """All instructions of a computation as nodes of a graph that stays acyclic while groups grow.

    A long computation is divided into windows, and no group is in two: a path that leaves a window never comes back.
    """

    def __init__(self, computation: Computation) -> None:
        self.instructions = computation.instructions
        self.position = {instruction: k for k, instruction in enumerate(self.instructions)}
        self.above = ancestors(computation, WINDOW)
        self.below = self._descendants()
        self.of: dict[Instruction, Group] = {}
        self._several: dict[Group, None] = {}
        self._in_several: dict[int, int] = {}
        """The members of groups of several instructions, by the first instruction of a window."""

    def _descendants(self) -> list[int]:
        below = [0] * len(self.instructions)
        for at in range(len(self.instructions) - 1, -1, -1):
            begin = at - at % WINDOW
            mask = below[at] | 1 << at - begin
            for operand in self.instructions[at].operands:
                if self.position[operand] >= begin:
                    below[self.position[operand]] |= mask
        return below

    def start(self, instruction: Instruction, loops: tuple[int, ...], reduced: tuple[bool, ...] | None = None) -> Group:
        """Starts a group of one instruction."""
        at = self.position[instruction]
        begin = at - at % WINDOW
        group = Group(loops, reduced, begin, 1 << at - begin, self.above[at], self.below[at], code_of(instruction))
        self.of[instruction] = group
        return group

    def may_join(self, a: Group, b: Group) -> bool:
        """Whether two groups have the same loops and no third instruction is on a path between them."""
        if a is b or a.loops != b.loops or a.begin != b.begin or a.code + b.code > MOST_CODE:
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
        # A path through other groups leaves `start` into a group, and enters `goal` from one.
        several = self._in_several.get(start.begin, 0)
        if not (reached & several and wanted & several):
            return False
        others = [g for g in self._several if g is not start and g is not goal and g.begin == start.begin]
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

    def may_absorb(self, instruction: Instruction, group: Group) -> bool:
        """Whether a group has space for an instruction."""
        if group.members.bit_count() >= MOST_MEMBERS or group.code + code_of(instruction) > MOST_CODE:
            return False
        return self.position[instruction] >= group.begin

    def join(self, a: Group, b: Group) -> Group:
        """Merges b into a."""
        for member in self.members(b):
            self.of[member] = a
        a.members |= b.members
        a.reduced = a.reduced or b.reduced
        a.above |= b.above
        a.below |= b.below
        a.code += b.code
        self._several.pop(b, None)
        self._note_several(a)
        return a

    def _note_several(self, group: Group) -> None:
        self._several[group] = None
        self._in_several[group.begin] = self._in_several.get(group.begin, 0) | group.members

    def between(self, group: Group, later: Group) -> list[Instruction]:
        """The instructions on paths by data from one group to another; none where they are in different windows."""
        if group.begin != later.begin:
            return []
        return [self.instructions[group.begin + at] for at in bits(group.below & later.above)]

    def members(self, group: Group) -> list[Instruction]:
        """The members in the computation's order."""
        return [self.instructions[group.begin + at] for at in bits(group.members)]

    def __iter__(self) -> Iterator[Group]:
        return iter(dict.fromkeys(self.of.values()))


def code_of(instruction: Instruction) -> int:
    """The length of an instruction's machine code, in additions."""
    row = OPCODES[instruction.opcode]
    is_complex = any(shape.element_type in COMPLEX for shape in instruction.tuple_shapes)
    return row.length * (CODE_OF_COMPLEX if is_complex else 1)


def ancestors(computation: Computation, window: int | None = None) -> list[int]:
    """Bit sets, one for each instruction in order, of the positions of the instructions on which it depends.

    With a window, the instructions are divided into runs of that many; bit 0 is the first instruction of a run.
    """
    position = {instruction: k for k, instruction in enumerate(computation.instructions)}
    above: list[int] = []
    for k, instruction in enumerate(computation.instructions):
        begin, mask = 0 if window is None else k - k % window, 0
        for operand in instruction.operands:
            at = position[operand]
            if at >= begin:
                mask |= above[at] | 1 << at - begin
        above.append(mask)
    return above


def bits(mask: int) -> Iterator[int]:
    """The indices of the one bits, lowest first."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest
