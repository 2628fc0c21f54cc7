"""Lowers factorizations of matrices: a unit for each matrix."""

from __future__ import annotations

from math import prod

from engine.ir import Instruction
from engine.ir.device_operations import config_of, target_of
from engine.ir.factorizations import EIGH, FACTORIZATIONS, LU, QR, SVD, factorization_shapes
from engine.lower.context import Context, Value, custom_call
from engine.lower.linear_algebra import SMALL
from engine.program.program import Address, Buffer, Partition, Span, WorkEstimate
from engine.program.work.factors import FactorizationWork

MULTIPLY_ADDS = {SVD: 8.0, EIGH: 4.0, QR: 2.0, LU: 1 / 3}
"""Multiply-adds as a multiple of n cubed, for an n x n matrix; a solution counts as LU, and n squared per right-hand
side.
"""


@custom_call(*FACTORIZATIONS)
def lower_factorization(context: Context, instruction: Instruction) -> Value:
    """The results, in the element type of the operands."""
    shapes = factorization_shapes(instruction)
    results = tuple(context.result_buffer(instruction, k) for k in range(len(shapes)))
    operands = [context.buffer(each) for each in instruction.operands]
    # A buffer may have another shape than the array in it.
    given = [each.array_shape for each in instruction.operands]
    *batch, rows, columns = given[0].dimensions
    matrices = prod(batch)
    target, config = target_of(instruction) or "", config_of(instruction)
    work = FactorizationWork(
        *(target, tuple(map(Address, operands)), tuple(map(Address, results)), rows, columns, given[0].element_type),
        full=bool(config.get("full")),
        vectors=bool(config.get("vectors")),
        right_sides=given[-1].dimensions[-1],
    )
    multiply_adds = max(1, int(MULTIPLY_ADDS.get(target, 1 / 3) * rows * columns * min(rows, columns)))
    if len(operands) > 1:
        multiply_adds += rows * given[1].elements // matrices
    reads, writes = ([_matrices(each, matrices) for each in side] for side in (operands, results))
    estimate = WorkEstimate({"factorization": matrices * multiply_adds}, 0, given[0].element_type)
    small = matrices * multiply_adds < SMALL
    context.emit_for(instruction, work, matrices, reads, writes, estimate, one_worker=small)
    return results


def _matrices(buffer: Buffer, matrices: int) -> Span:
    return Span(buffer, Partition(buffer.shape.elements // matrices, matrices, 1))
