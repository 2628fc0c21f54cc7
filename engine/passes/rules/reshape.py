"""Reshapes of reshapes and of broadcasts."""

from __future__ import annotations

from engine.ir import Instruction
from engine.passes import construct
from engine.passes.rewriting import RuleSet, changed

RULES = RuleSet()

Dimensions = tuple[int, ...]
Group = tuple[range, range]


@RULES.on("reshape", of="reshape")
def reshape_of_reshape(instruction: Instruction) -> Instruction | None:
    """A reshape of a reshape is one reshape."""
    return changed(instruction, operands=instruction.operands[0].operands)


@RULES.on("reshape", of="broadcast")
def reshape_of_broadcast(instruction: Instruction) -> Instruction | None:
    """A broadcast of a reshape, if no dimension mixes mapped dimensions with broadcast ones."""
    operand = instruction.operands[0]
    source, mapping = operand.operands[0], operand["dimensions"]
    if list(mapping) != sorted(mapping):
        return None
    new = instruction.array_shape.dimensions
    kept = _kept_dimensions(operand.array_shape.dimensions, new, frozenset(mapping))
    if kept is None:
        return None
    inner = construct.reshape(instruction, source, tuple(new[d] for d in kept))
    return construct.broadcast(instruction, inner, new, kept)


def _kept_dimensions(old: Dimensions, new: Dimensions, mapped: frozenset[int]) -> Dimensions | None:
    """The new dimensions that the old ones in `mapped` become; None if some mix with others."""
    groups = matching_groups(old, new)
    if groups is None:
        return None
    kept: list[int] = []
    for old_group, new_group in groups:
        from_source = [d for d in old_group if d in mapped and old[d] != 1]
        others = [d for d in old_group if d not in mapped and old[d] != 1]
        if from_source and others:
            return None
        if from_source:
            kept += new_group
    return tuple(kept)


def matching_groups(old: Dimensions, new: Dimensions) -> list[Group] | None:
    """The smallest runs of old and new dimensions with the same elements; None if there are no elements.

    >>> matching_groups((2, 3, 4), (6, 1, 4))
    [(range(0, 2), range(0, 1)), (range(2, 2), range(1, 2)), (range(2, 3), range(2, 3))]
    """
    if 0 in old:
        return None
    groups: list[Group] = []
    i = j = 0
    while i < len(old) or j < len(new):
        first_i, first_j = i, j
        if i < len(old) and old[i] == 1:
            i += 1
        elif j < len(new) and new[j] == 1:
            j += 1
        else:
            i, j = _run(old, new, i, j)
        groups.append((range(first_i, i), range(first_j, j)))
    return groups


def _run(old: Dimensions, new: Dimensions, i: int, j: int) -> tuple[int, int]:
    """The ends of the shortest runs from i and j that have the same product."""
    left, right = old[i], new[j]
    i, j = i + 1, j + 1
    while left != right:
        if left < right:
            left, i = left * old[i], i + 1
        else:
            right, j = right * new[j], j + 1
    return i, j
