"""Variables whose next values depend on variables alone: counts, and states of random number generators.

All their updates can be computed at once, in the first stage that reads one, however many stages read them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from engine.ir import Instruction
from engine.ir.module import topological

NOWHERE = 10**6
"""The position of a value without readers."""


def owners_by_themselves(
    varying: Sequence[Instruction],
    owned: Mapping[Instruction, Instruction],
    users: Mapping[Instruction, Sequence[Instruction]],
    latest: Mapping[Instruction, int],
    acting: Set[Instruction] = frozenset(),
) -> dict[Instruction, int]:
    """The position of each variable that depends on variables alone, and of all instructions of its next value.

    `varying` is in an order in which operands come first, `owned` has each variable's next value, `latest` the
    position at which each instruction's value is first read, or NOWHERE. Instructions in `acting` have side effects:
    the result of an infeed does not depend on its token alone.
    """
    own = _own(varying, owned, acting)
    chains = {v: [i for i in topological([owned[v]]) if i in own] + [v] for v in owned if v in own}
    group = {instruction: instruction for chain in chains.values() for instruction in chain}

    def first_of(instruction: Instruction) -> Instruction:
        while group[instruction] is not instruction:
            instruction = group[instruction]
        return instruction

    for chain in chains.values():
        for instruction in chain:
            group[first_of(instruction)] = first_of(chain[0])
    position: dict[Instruction, int] = {}
    for instruction in group:
        readers = [latest[user] for user in users[instruction] if user not in group]
        first = first_of(instruction)
        position[first] = min([position.get(first, NOWHERE), latest[instruction], *readers])
    return {i: 0 if position[first_of(i)] == NOWHERE else position[first_of(i)] for i in group}


def _own(
    varying: Sequence[Instruction], owned: Mapping[Instruction, Instruction], acting: Set[Instruction]
) -> set[Instruction]:
    """The instructions that depend only on variables whose next values depend on such variables alone."""
    kept = dict(owned)
    while True:
        own: set[Instruction] = set()
        among = set(varying)
        for instruction in varying:
            sources = [operand for operand in instruction.operands if operand in among]
            computed = sources and instruction not in acting
            if instruction in kept or (computed and all(operand in own for operand in sources)):
                own.add(instruction)
        lost = [v for v, value in kept.items() if value in among and value not in own]
        if not lost:
            return own
        for v in lost:
            del kept[v]
