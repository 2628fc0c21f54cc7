"""Products that are read transposed: an attention's heads, which are side by side in each position's row.

Where a dot cannot give the order of dimensions, its lowering writes the transposed array directly. Sums over the
product become sums over the transposed array, so that only this one has readers.
"""

from __future__ import annotations

from engine.ir import Computation, Instruction
from engine.passes import construct
from engine.passes.rewriting import Visit, changed, for_each

Order = tuple[int, ...]
LEAST_ELEMENTS, LEAST_LANES = 1 << 14, 16
"""Fewest elements in total, and of both dimensions, of a transpose that is stored for several readers."""


def order_wanted(product: Instruction, users: list[Instruction]) -> Order | None:
    """The permutation by which all users but sums transpose a dot; None if there is none, or it has no benefit.

    Neighbours in the transposed array must come from neighbouring columns of one operand, so that lanes can write them.
    """
    orders = {tuple(u["dimensions"]) for u in users if u.opcode == "transpose"}
    if product.opcode != "dot" or len(orders) != 1 or not all(u.opcode == "transpose" or is_sum(u) for u in users):
        return None
    (order,) = orders
    numbers = product["dot_dimension_numbers"]
    sizes = product.array_shape.dimensions
    inner = [d for d in order if sizes[d] != 1][-1:]
    if not inner or inner[0] < len(numbers.lhs_batch_dimensions):
        return None
    return order


def is_made_transposed(transpose: Instruction, users: dict[Instruction, list[Instruction]]) -> bool:
    """Whether a transpose is stored in memory, and its operand, a dot, is not."""
    if transpose.opcode != "transpose" or transpose.operands[0].opcode != "dot":
        return False
    (product,) = transpose.operands
    alike = all(user.opcode == "transpose" for user in users[product])
    return alike and order_wanted(product, users[product]) is not None


def moves_lanes(transpose: Instruction) -> bool:
    """Whether a transpose has another innermost dimension than its operand, and is copied in blocks."""
    dimensions, sizes = transpose["dimensions"], transpose.array_shape.dimensions
    moved = [(dimension, size) for dimension, size in zip(dimensions, sizes, strict=True) if size != 1]
    if transpose.array_shape.dtype.itemsize != 4 or transpose.array_shape.elements < LEAST_ELEMENTS or not moved:
        return False
    innermost, rows = moved[-1]
    last = max(dimension for dimension, _ in moved)
    return innermost != last and min(rows, dict(moved)[last]) >= LEAST_LANES


def is_sum(instruction: Instruction) -> bool:
    """Whether an instruction is a reduce of one array, whose dimensions may be in any order."""
    return instruction.opcode == "reduce" and len(instruction.operands) == 2


@for_each
def sums_of_transposed_products(computation: Computation) -> Visit:
    """Replaces sums of a product that is read transposed by sums of the transposed array."""
    users = computation.users()

    def visit(before: Instruction, instruction: Instruction) -> Instruction | None:
        if not is_sum(before) or before.operands[0].opcode != "dot" or before.operands[0] is computation.root:
            return None
        order = order_wanted(before.operands[0], users[before.operands[0]])
        if order is None:
            return None
        product, start = instruction.operands
        transposed = construct.transpose(product, product, order)
        reduced = set(before["dimensions"])
        dimensions = tuple(k for k, d in enumerate(order) if d in reduced)
        kept = [d for d in order if d not in reduced]
        total = construct.shaped(changed(instruction, operands=(transposed, start), dimensions=dimensions))
        return construct.transpose(instruction, total, tuple(kept.index(d) for d in sorted(kept)))

    return visit
