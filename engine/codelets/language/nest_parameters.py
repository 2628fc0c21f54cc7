"""Constants of nests as words of their parameter blocks, so that one codelet serves all batch sizes and settings.

Only constants whose values make no difference to the machine code: terms, factors and bounds.
"""

from __future__ import annotations

from dataclasses import replace
from math import isfinite

import numpy as np

from engine.program.nest import Apply, Constant, Nest, Node, Parameter

KEPT = {"0.0", "-0.0", "1.0", "-1.0", "0", "1", "-1"}
"""Values that operations have instructions of their own for."""
OPCODES = {"f32": ("add", "subtract", "multiply", "divide", "compare"), "s32": ("compare",), "s64": ("compare",)}


def with_parameters(nest: Nest) -> tuple[Nest, list[int]]:
    """The nest with Parameters in place of such constants, and their words in the block."""
    found = [] if nest.exceptions else [number for number, node in enumerate(nest.nodes) if _has_plain_value(node)]
    special = _special(nest) if found else set()
    numbers = [number for number in found if number not in special]
    if not numbers:
        return nest, []
    nodes, words = list(nest.nodes), list[int]()
    for number in numbers:
        constant = nodes[number]
        assert isinstance(constant, Constant)
        nodes[number] = Parameter(constant.element_type, len(words))
        words.append(_word(constant))
    return replace(nest, nodes=tuple(nodes)), words


def _has_plain_value(node: Node) -> bool:
    if not isinstance(node, Constant) or node.element_type not in OPCODES or node.value in KEPT:
        return False
    return isfinite(float(node.value))


def _special(nest: Nest) -> set[int]:
    """The nodes whose value an operation may depend on, or that are stored or reduced."""
    found = {store.node for store in nest.stores}
    for reduction in nest.reductions:
        found.update((*reduction.values, *reduction.initial))
    for node in nest.nodes:
        if isinstance(node, Apply) and node.operation.opcode not in OPCODES.get(node.operation.operand_types[0], ()):
            found.update(node.operands)
    return found


def _word(constant: Constant) -> int:
    """The bits of a constant, in the lower half of a word if it has 32."""
    if constant.element_type == "f32":
        return int(np.float32(constant.value).view(np.int32))
    return int(constant.value)
