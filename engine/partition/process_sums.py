"""Sums over processes that can be computed together: neighbouring calls, of which none depends on another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from engine.ir import Instruction

SUM = "sum"
"""The value of the attribute "of_processes" in calls that sum their operands."""


def with_sums_together(
    instructions: Sequence[Instruction], communicates_in: Callable[[Instruction], bool]
) -> Iterator[Instruction | list[Instruction]]:
    """The instructions in an order in which calls that sum follow each other; several of them are a list.

    Other calls between processes, and loops and branches that communicate, keep their order relative to these calls.
    """
    group_of = _groups(instructions, communicates_in)
    late: list[Instruction] = []
    waiting: set[Instruction] = set()
    for instruction in instructions:
        group = group_of.get(instruction, [instruction])
        if instruction is not group[-1] or any(operand in waiting for operand in instruction.operands):
            waiting.add(instruction)
            if instruction not in group_of:
                late.append(instruction)
            continue
        yield group if len(group) > 1 else instruction
        if len(group) > 1:
            yield from late
            late, waiting = [], set()


def _groups(
    instructions: Sequence[Instruction], communicates_in: Callable[[Instruction], bool]
) -> dict[Instruction, list[Instruction]]:
    """Maps each call that sums to the calls that are computed together with it, in order, itself included."""
    found: dict[Instruction, list[Instruction]] = {}
    group: list[Instruction] = []
    after: set[Instruction] = set()
    """Instructions that depend on the group."""
    for instruction in instructions:
        depends, kind = any(operand in after for operand in instruction.operands), instruction.get("of_processes")
        if (kind == SUM and depends) or (kind and kind != SUM) or communicates_in(instruction):
            group, after, depends = [], set(), False
        if kind == SUM:
            group.append(instruction)
            found[instruction] = group
        if kind == SUM or depends:
            after.add(instruction)
    return found
