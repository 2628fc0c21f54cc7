"""The part of a table's update that needs neither gradient nor moments: it keeps a row, or lets it drift."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from engine.emit.contraction import contracted
from engine.emit.nest import Apply, MultiplyAdd, Nest, Node, Store


def parts_of(nest: Nest, new: int, old: int) -> tuple[int, int] | None:
    """Returns nodes (base, other): new is base + other, base - other or other + base, and only base needs `old`."""
    made, dependents = nest.nodes[new], _dependents(nest, old)
    if not isinstance(made, Apply) or made.operation.opcode not in ("add", "subtract"):
        return None
    first, second = made.operands
    if (first in dependents) == (second in dependents) or (second in dependents and made.operation.opcode != "add"):
        return None
    return (first, second) if first in dependents else (second, first)


def _dependents(nest: Nest, on: int) -> set[int]:
    """A node and all that depend on it."""
    found = {on}
    for number, node in enumerate(nest.nodes):
        if isinstance(node, Apply) and any(each in found for each in node.operands):
            found.add(number)
    return found


def leaves(nest: Nest, node: int, without: Mapping[int, int]) -> set[int]:
    """The nodes without operands that a node depends on, where `without` maps nodes to others in their place."""
    return {each for each in _reached(nest, [node], without) if not isinstance(nest.nodes[each], Apply)}


def _reached(nest: Nest, nodes: Sequence[int], without: Mapping[int, int]) -> set[int]:
    found, pending = set[int](), list(nodes)
    while pending:
        node = pending.pop()
        if node not in found:
            found.add(node)
            made = nest.nodes[node]
            pending += [without.get(o, o) for o in made.operands] if isinstance(made, Apply | MultiplyAdd) else []
    return found


def drift_of(nest: Nest, stores: Sequence[Store], without: Mapping[int, int]) -> Nest | None:
    """The nest with these stores and replacements, and the same accesses; None if it might round in another way."""
    nest = contracted(nest)
    order = sorted(_reached(nest, [each.node for each in stores], without))
    numbers = {node: number for number, node in enumerate(order)}
    made = [nest.nodes[node] for node in order]
    if any(isinstance(each, Apply) and each.operation.is_estimated for each in made):
        return None  # it would be contracted once more, by uses within the drift

    def numbered(nodes: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(numbers[without.get(each, each)] for each in nodes)

    def renumbered(node: Node) -> Node:
        if isinstance(node, MultiplyAdd):
            (addend,) = numbered((node.addend,))
            return replace(node, factors=numbered(node.factors), addend=addend)
        return replace(node, operands=numbered(node.operands)) if isinstance(node, Apply) else node

    stored = tuple(replace(each, node=numbers[each.node]) for each in stores)
    return replace(nest, nodes=tuple(map(renumbered, made)), stores=stored)
