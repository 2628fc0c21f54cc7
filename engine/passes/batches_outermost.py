"""Products that other products read batch by batch are stored with these batches outermost.

An einsum such as "bip,nipd->bnid" is a dot whose outermost dimension is i; its readers multiply a matrix [i, d] for
each b and n, whose rows are far apart in memory. Readers get a transpose, which the lowering of the first dot writes
directly.
"""

from __future__ import annotations

from engine.ir import Computation, DotDimensionNumbers, Instruction
from engine.ir.affine import row_major_strides
from engine.passes import construct
from engine.passes.rewriting import Visit, changed, for_each

FAR_BYTES = 4096
"""Distance of a batch's rows from which each is in a page of its own, which no prefetcher reads ahead."""
LEAST_BYTES = 1 << 17
"""Bytes of a product from which its batches become outermost: a smaller one stays in a near cache."""


@for_each
def batches_outermost(computation: Computation) -> Visit:
    """Makes dots read the transposed results of other dots, if their batches are then contiguous."""
    users = computation.users()
    orders = {
        each: order
        for each in computation.instructions
        if each.opcode == "dot" and each is not computation.root
        for order in [order_of_batches(each, users[each])]
        if order is not None
    }

    def visit(before: Instruction, instruction: Instruction) -> Instruction | None:
        if before.opcode != "dot":
            return None
        made = instruction
        for index, operand in enumerate(before.operands):
            if operand in orders:
                made = _reading_transposed(made, index, orders[operand])
        return made if made is not instruction else None

    return visit


def order_of_batches(product: Instruction, users: list[Instruction]) -> tuple[int, ...] | None:
    """The order in which all users, which are dots, have contiguous batches of a product; None if none is better."""
    shape = product.array_shape
    if shape.bytes < LEAST_BYTES or not all(each.opcode == "dot" for each in users):
        return None
    found = {batch for each in users for batch in _batches_of(each, product)}
    if len(found) != 1:
        return None
    (batch,) = found
    strides = [each * shape.dtype.itemsize for each in row_major_strides(shape)]
    rest = [d for d in range(shape.rank) if d not in batch]
    last = max((d for d in range(shape.rank) if shape.dimensions[d] > 1), default=0)
    if not batch or not rest or last in batch or last < len(product["dot_dimension_numbers"].lhs_batch_dimensions):
        return None
    order = (*sorted(batch), *rest)
    outer = next((d for d in rest if shape.dimensions[d] > 1), last)
    return order if outer != last and strides[outer] >= FAR_BYTES and outer < max(batch) else None


def _batches_of(dot: Instruction, product: Instruction) -> list[frozenset[int]]:
    """The product's dimensions that are batches of a dot, for each of the dot's operands that is the product."""
    numbers: DotDimensionNumbers = dot["dot_dimension_numbers"]
    return [frozenset(batch) for batch, each in zip(numbers.batch, dot.operands, strict=True) if each is product]


def _reading_transposed(dot: Instruction, index: int, order: tuple[int, ...]) -> Instruction:
    """The dot with an operand transposed to that order; its free dimensions keep theirs."""
    numbers: DotDimensionNumbers = dot["dot_dimension_numbers"]
    operands = list(dot.operands)
    operands[index] = construct.transpose(operands[index], operands[index], order)
    return changed(dot, operands=operands, dot_dimension_numbers=numbers.renumbered(index, order.index))
