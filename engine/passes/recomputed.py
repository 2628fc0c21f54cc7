"""Members of a group that other groups recompute from arrays in memory, instead of reading a result.

The backward pass needs many values of the forward pass: an activation's input, a normalised array.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from engine.ir import Instruction, Shape
from engine.ir.module import reached
from engine.ir.opcodes import CONTRACTIONS, OPCODES
from engine.passes.fusible import is_elementwise, is_scalar_constant, is_unit_reshape, reads_pointwise
from engine.passes.groups import Group, Groups

LEAST_ELEMENTS = 1 << 17
"""Smaller results stay in a cache close to the core."""
MOST_COST = 16
"""Cost of operations per element that take about as long as writing and re-reading the element."""
MOST_COST_AT_HAND = 4
"""Cost of operations up to which a result that is re-read at once, from a cache, is recomputed."""
MOST_COST_OF_LARGE = 8
"""Cost of operations up to which arrays above LEAST_BYTES_OF_LARGE, which have left the core's caches, are
recomputed.
"""
LEAST_BYTES_OF_LARGE = 1 << 20
MOST_BYTES_AT_HAND = 1 << 19
"""Bytes of an array that may be read in addition to replace one that was written: it is still in the cache."""
SMALL = 8
"""The factor by which an array must be smaller to cost next to nothing to read."""


class Recomputed:
    """The members of all groups of a computation that are recomputed and hence no results."""

    def __init__(
        self, groups: Groups, users: dict[Instruction, list[Instruction]], is_free: Callable[[Instruction], bool]
    ) -> None:
        """`is_free` tests whether a codelet looks through an instruction in no group."""
        self.groups, self.users, self.is_free = groups, users, is_free
        self._chosen = cache(self._choose)

    def __contains__(self, instruction: Instruction) -> bool:
        return instruction in self._of(instruction)[0]

    def is_on_the_way(self, instruction: Instruction) -> bool:
        """Whether other groups look through a member, because they recompute it, or another member from it."""
        return instruction in self._of(instruction)[1]

    def _of(self, instruction: Instruction) -> tuple[set[Instruction], set[Instruction]]:
        group = self.groups.of.get(instruction)
        return (set(), set()) if group is None else self._chosen(group)

    def _choose(self, group: Group) -> tuple[set[Instruction], set[Instruction]]:
        """The recomputed members, never all results of a group, and the members that recomputing them takes."""
        read = {m: None for m in self.groups.members(group) if self._is_read_outside(m, group)}
        ways = {m: way for m in read if self._may_be_reread(m, group) and (way := self._way_to(m, group))}
        if not ways or len(ways) == len(read):
            return set(), set()
        results = read.keys() - ways.keys()
        return set(ways), set().union(*ways.values()) - results

    def _is_read_outside(self, member: Instruction, group: Group) -> bool:
        return not self.users[member] or bool(self._readers_outside(member, group))

    def _readers_outside(self, member: Instruction, group: Group) -> list[Instruction]:
        return [u for u in self.users[member] if self.groups.of.get(u) is not group]

    def _may_be_reread(self, member: Instruction, group: Group) -> bool:
        shape = member.shape
        if not isinstance(shape, Shape) or shape.elements < LEAST_ELEMENTS or is_unit_reshape(member):
            return False
        readers = self._readers_outside(member, group)
        return bool(readers) and all(
            u in self.groups.of and not is_unit_reshape(u) and reads_pointwise(u, member) for u in readers
        )

    def _pays(self, member: Instruction, group: Group, large: set[Instruction], cost: int) -> bool:
        """Whether the readers of a recomputed member read at most one more array, and this one from a cache."""
        readers = {self.groups.of[u] for u in self._readers_outside(member, group)}
        more = sum(max(0, len(large - self._read_by(reader)) - 1) for reader in readers)
        available = [not self._are_products_between(group, reader) for reader in readers]
        size = member.array_shape
        if any(available):
            if cost > (MOST_COST_OF_LARGE if size.bytes > LEAST_BYTES_OF_LARGE else MOST_COST_AT_HAND):
                return False
            if size.bytes > LEAST_BYTES_OF_LARGE and any(a.array_shape.elements > size.elements for a in large):
                return False  # a reader can write its result over an array of the same size, not over a slice of one
        return not more or (more == 1 and all(available) and size.bytes <= MOST_BYTES_AT_HAND)

    def _read_by(self, group: Group) -> set[Instruction]:
        """The arrays a group reads, through data movement."""
        read = [o for member in self.groups.members(group) for o in member.operands]
        found = reached(read, lambda each: each.operands if self.is_free(each) else ())
        return {each for each in found if self.groups.of.get(each) is not group and not self.is_free(each)}

    def _are_products_between(self, group: Group, reader: Group) -> bool:
        return any(each.opcode in CONTRACTIONS for each in self.groups.between(group, reader))

    def _way_to(self, member: Instruction, group: Group) -> set[Instruction]:
        """The members from which a member is computed, if these are few operations on arrays in memory; else none."""
        cost, large, way = 0, set(), set()
        stack, seen = [member], {member}
        while stack:
            current = stack.pop()
            inside = self.groups.of.get(current) is group
            if inside or self.is_on_the_way(current):
                if current.opcode == "reduce" or not is_elementwise(current):
                    return set()
                way |= {current} if inside else set()
                cost += OPCODES[current.opcode].cost
            elif not self.is_free(current):
                if not isinstance(current.shape, Shape):
                    return set()
                if current.shape.elements * SMALL > member.array_shape.elements:
                    # A parameter may be a variable, and updated before the group runs.
                    # A contraction's result is in memory in any case.
                    if current.opcode not in CONTRACTIONS and current not in self.groups.of:
                        return set()
                    large.add(current)
                continue
            if cost > MOST_COST:
                return set()
            fresh = [o for o in current.operands if o not in seen and not is_scalar_constant(o)]
            seen.update(fresh)
            stack += fresh
        return way if self._pays(member, group, large, cost) else set()
