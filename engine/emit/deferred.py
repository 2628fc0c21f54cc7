"""Roundings to f16 that the store does, for results that only pass maxima and similar operations on the way to memory.

Rounding to nearest keeps order, signs and zeros, so a maximum of rounded numbers is the rounded maximum, bit for bit.
bf16 is left out: its stores take the upper halves of numbers that are rounded already.
"""

from __future__ import annotations

from engine.emit.registry import EXACT
from engine.program.nest import Apply, Constant, Nest, Node

NEGATIVE_ZERO = "-0.0"
"""A number that rounds to zero compares differently with this constant before it is rounded."""


def deferred_roundings(nest: Nest) -> frozenset[int]:
    """The nodes whose values may stay float32 until they are stored."""
    if nest.exceptions:
        return frozenset()
    users: dict[int, list[int]] = {}
    for number, node in enumerate(nest.nodes):
        for operand in getattr(node, "operands", ()):
            users.setdefault(operand, []).append(number)
    reduced = {number for each in nest.reductions for number in (*each.values, *each.initial)}
    found = set[int]()
    for number in reversed(range(len(nest.nodes))):
        node = nest.nodes[number]
        if not isinstance(node, Apply) or node.operation.element_type != "f16" or number in reduced:
            continue
        if all(user in found and _passes(nest.nodes, user, number) for user in users.get(number, ())):
            found.add(number)
    return frozenset(found)


def _passes(nodes: tuple[Node, ...], user: int, number: int) -> bool:
    """Whether node `user` gives the same bits if its operand `number` is rounded after the node, not before it."""
    node = nodes[user]
    if not isinstance(node, Apply) or node.operation.opcode not in EXACT:
        return False
    if node.operation.opcode == "maximum":
        others = [nodes[each] for each in node.operands if each != number]
        return all(isinstance(each, Constant) and each.value not in (NEGATIVE_ZERO, "nan") for each in others)
    return node.operation.opcode in ("abs", "negate", "select")
