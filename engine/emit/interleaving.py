"""Several vectors of a nest that are computed together, and whether that helps."""

from __future__ import annotations

from itertools import pairwise, zip_longest

from engine.codelets.language.lanes import HALF_TYPES, SIDE_BY_SIDE, is_float
from engine.emit.point import Point
from engine.emit.registry import LONG_FUNCTIONS
from engine.ir.opcodes import OPCODES
from engine.machine_code.processor import registers
from engine.program.nest import Apply, Constant, Input, Nest, Parameter

MANY_SIDE_BY_SIDE = 8
"""Vectors of columns of 16-bit floats that are reduced together: 16 were slower on a Zen 5."""
LEAST_ROUNDED = 3
"""Fewest operations of 16-bit floats for which several vectors are interleaved."""
MOST_NODES_SIDE_BY_SIDE = 64
"""Most nodes of a nest whose vectors of columns are computed several at a time."""
MOST_CODE_SIDE_BY_SIDE = 256
"""Most machine code, in additions, of such a nest: LLVM's time grows faster than the code."""
FEW_REGISTERS = 16
"""Vector registers of AVX2, which LLVM's scheduler spares so much that it undoes the interleaving of vectors."""


def has_long_chains(nest: Nest) -> bool:
    """Whether a point's operations depend on one another for longer than the processor looks ahead: interleaving helps.

    Operations of 16-bit floats do, as each is rounded, and so do functions, which are polynomials.
    """
    applied = [node.operation for node in nest.nodes if isinstance(node, Apply)]
    functions = any(each.opcode in LONG_FUNCTIONS and is_float(each.element_type) for each in applied)
    return is_short(nest) and (functions or rounds_often(nest))


def is_short(nest: Nest) -> bool:
    """Whether a nest has so little code that several points may be computed together."""
    if len(nest.nodes) > MOST_NODES_SIDE_BY_SIDE:
        return False
    applied = [OPCODES[node.operation.opcode] for node in nest.nodes if isinstance(node, Apply)]
    return sum(each.length for each in applied) <= MOST_CODE_SIDE_BY_SIDE


def vectors_together(nest: Nest) -> tuple[int, ...]:
    """Numbers of vectors that are computed at a time, the largest first."""
    return (MANY_SIDE_BY_SIDE, SIDE_BY_SIDE) if rounds_often(nest) else (SIDE_BY_SIDE,)


def vectors_alternate(nest: Nest) -> bool:
    """Whether instructions of several vectors alternate, and are compiled in this order: 16 registers can hold them."""
    if registers() != FEW_REGISTERS or nest.exceptions or not has_long_chains(nest) or rounds_often(nest):
        return False
    return _most_live(nest) * SIDE_BY_SIDE <= FEW_REGISTERS


def _most_live(nest: Nest) -> int:
    """The most values of a point that are held at a time, without those that all points share."""
    last = {number: user for user, node in enumerate(nest.nodes) for number in getattr(node, "operands", ())}
    kept = {store.node for store in nest.stores} | {value for each in nest.reductions for value in each.values}
    varying = [
        number
        for number, node in enumerate(nest.nodes)
        if not isinstance(node, Constant | Parameter)
        and not (isinstance(node, Input) and nest.accesses[node.access].inner == "splat")
    ]
    return max(
        sum(each <= number and (each in kept or last.get(each, 0) > number) for each in varying) for number in varying
    )


def rounds_often(nest: Nest) -> bool:
    """Whether a point has several operations of 16-bit floats."""
    applied = (node.operation.element_type for node in nest.nodes if isinstance(node, Apply))
    return sum(each in HALF_TYPES for each in applied) >= LEAST_ROUNDED


def evaluate_together(points: list[Point], numbers: list[int], alternates: bool) -> None:
    """Evaluates each node at all points before the next node, so that the latencies of several points overlap.

    With `alternates` the instructions of the points alternate, except in nodes that branch.
    """
    builder = points[0].lanes.builder
    for number in points[0].needed(*numbers):
        block, ends = builder.block, [len(builder.block.instructions)]
        for point in points:
            point.value(number)
            ends.append(len(block.instructions))
        if alternates and builder.block is block:
            parts = [block.instructions[start:end] for start, end in pairwise(ends)]
            block.instructions[ends[0] :] = [each for row in zip_longest(*parts) for each in row if each is not None]
