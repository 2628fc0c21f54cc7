"""Fused multiply-adds, rounded once, in nests that allow a few ULP of error, such as optimizer updates.

Terms that share an input may cancel: x * y - x * y is 0 only if both products are rounded. The gradient of a statistic
over a batch of one row is such a difference, and optimizers that normalise would enlarge its error. These terms are not
fused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from operator import or_

from engine.program.nest import Apply, Constant, MultiplyAdd, Nest, Node, Parameter


def contracted(nest: Nest) -> Nest:
    """Replaces f32 sums by multiply-adds where one term is a product or an estimated quotient.

    Nodes keep their numbers. Where exceptions are checked, no operations are fused.
    """
    if nest.exceptions or not any(isinstance(node, Apply) and node.operation.is_estimated for node in nest.nodes):
        return nest
    uses, inputs = _uses(nest), _inputs(nest.nodes)
    return replace(nest, nodes=tuple(_contracted(nest.nodes, node, uses, inputs) for node in nest.nodes))


def _uses(nest: Nest) -> Counter[int]:
    uses = Counter(store.node for store in nest.stores)
    for node in nest.nodes:
        uses.update(node.operands if isinstance(node, Apply) else ())
    for reduction in nest.reductions:
        uses.update((*reduction.values, *reduction.initial))
    return uses


def _inputs(nodes: Sequence[Node]) -> list[int]:
    """Returns, for each node, the inputs from which it is computed, as bits."""
    found: list[int] = []
    for number, node in enumerate(nodes):
        own = 0 if isinstance(node, Constant | Parameter) else 1 << number
        found.append(reduce(or_, (found[o] for o in node.operands)) if isinstance(node, Apply) else own)
    return found


def _contracted(nodes: tuple[Node, ...], node: Node, uses: Counter[int], inputs: Sequence[int]) -> Node:
    if not isinstance(node, Apply) or node.operation.opcode not in ("add", "subtract"):
        return node
    subtracts = node.operation.opcode == "subtract"
    for position, number in enumerate(node.operands):
        term = nodes[number]
        addend = node.operands[1 - position]
        may_cancel = isinstance(nodes[addend], Apply) and inputs[addend] & inputs[number]
        if isinstance(term, Apply) and uses[number] == 1 and _is_product(term) and not may_cancel:
            divides = term.operation.opcode == "divide"
            return MultiplyAdd(term.operands, addend, divides, subtracts and position == 1, subtracts and position == 0)
    return node


def _is_product(node: Apply) -> bool:
    operation = node.operation
    return operation.element_type == "f32" and (
        operation.opcode == "multiply" or (operation.opcode == "divide" and operation.is_estimated)
    )
