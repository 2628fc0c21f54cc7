"""Reductions of the gradients of embedding tables, for norms and tests of infinities, to which zeros add nothing."""

from __future__ import annotations

from engine.program.buffer import Buffer
from engine.program.nest import Apply, Constant, Input, Reduction
from engine.program.program import ComputeSet
from engine.program.work.fused_loop import FusedLoop, Strided

LEAST_GRAIN = 16
"""Fewest elements of a unit: the float32 lanes of the widest vectors."""


def reduction_of(compute_set: ComputeSet, table: Buffer) -> int | None:
    """The number of the result's operand if a compute set reduces a table and named rows suffice for it; else None."""
    loop = compute_set.work
    if not isinstance(loop, FusedLoop) or loop.nest.rank != 1 or not loop.nest.splits_reduction or loop.nest.stores:
        return None
    nest = loop.nest
    if len(nest.reductions) != 1 or loop.grain < LEAST_GRAIN:
        return None
    (reduction,) = nest.reductions
    if loop.extents[0] != table.shape.elements or not _takes_zeros(loop, reduction):
        return None
    return reduction.accesses[0] if [o for o in loop.operands_at(table) if _is_whole(o)] else None


def _is_whole(operand: Strided) -> bool:
    """Whether an operand runs over a table from its first element on."""
    return not operand.address.offset and operand.strides == (4,)


def _takes_zeros(loop: FusedLoop, reduction: Reduction) -> bool:
    """Whether a reduction sums squares of the one array that its loop reads, or tests that all elements are finite."""
    nodes = loop.nest.nodes
    value = nodes[reduction.values[0]]
    if not isinstance(value, Apply) or not isinstance(nodes[value.operands[0]], Input) or len(set(value.operands)) != 1:
        return False
    if any(not isinstance(node, Constant) for node in nodes if node not in (value, nodes[value.operands[0]])):
        return False
    kind = reduction.combine, value.operation.opcode, value.operation.element_type
    return kind in (("add", "multiply", "f32"), ("and", "is-finite", "pred"))
