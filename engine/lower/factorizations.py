"""Lowers factorizations of matrices: a unit for each matrix."""

from __future__ import annotations

from math import prod

from engine.codelets.factors.eigenvalues import Eigenvalues, eigenvalues, eigenvalues_scratch_bytes
from engine.codelets.factors.elimination import (
    Factors,
    LinearSystem,
    solution,
    solution_scratch_bytes,
    triangular_factors,
)
from engine.codelets.factors.orthogonal_factors import (
    OrthogonalFactors,
    orthogonal_factors,
    orthogonal_factors_scratch_bytes,
)
from engine.codelets.factors.singular_values import SingularValues, singular_values, singular_values_scratch_bytes
from engine.codelets.language.build import Codelet
from engine.codelets.language.record import Record
from engine.ir import Instruction
from engine.ir.device_operations import config_of, target_of
from engine.ir.factorizations import EIGH, LU, QR, SVD, factorization_shapes
from engine.lower.context import Context, Value
from engine.lower.linear_algebra import SMALL
from engine.program.program import Address, Buffer, Partition, Span, WorkEstimate
from engine.program.work.codelet_work import CodeletWork

MULTIPLY_ADDS = {SVD: 8.0, EIGH: 4.0, QR: 2.0, LU: 1 / 3}
"""Multiply-adds as a multiple of n cubed, for an n x n matrix; a solution counts as LU, and n squared per right-hand
side.
"""


def lower_factorization(context: Context, instruction: Instruction) -> Value:
    """The results, in the element type of the operands."""
    shapes = factorization_shapes(instruction)
    results = tuple(context.result_buffer(instruction, k) for k in range(len(shapes)))
    operands = [context.buffer(each) for each in instruction.operands]
    # A buffer may have another shape than the array in it.
    given = [each.array_shape for each in instruction.operands]
    *batch, rows, columns = given[0].dimensions
    matrices = prod(batch)
    codelet, parameters, scratch = _work(instruction, operands, results)
    multiply_adds = max(
        1, int(MULTIPLY_ADDS.get(target_of(instruction) or "", 1 / 3) * rows * columns * min(rows, columns))
    )
    if len(operands) > 1:
        multiply_adds += rows * given[1].elements // matrices
    reads, writes = ([_matrices(each, matrices) for each in side] for side in (operands, results))
    estimate = WorkEstimate({"factorization": matrices * multiply_adds}, 0, given[0].element_type)
    work, small = CodeletWork(codelet, parameters, scratch=scratch), matrices * multiply_adds < SMALL
    context.emit_for(instruction, work, matrices, reads, writes, estimate, one_worker=small)
    return results


def _matrices(buffer: Buffer, matrices: int) -> Span:
    return Span(buffer, Partition(buffer.shape.elements // matrices, matrices, 1))


def _work(instruction: Instruction, operands: list[Buffer], results: tuple[Buffer, ...]) -> tuple[Codelet, Record, int]:
    """The codelet, its parameters and its bytes of scratch."""
    shape = instruction.operands[0].array_shape
    target, config, kind = target_of(instruction), config_of(instruction), shape.element_type
    *_, rows, columns = shape.dimensions
    a, *others = (Address(each) for each in operands)
    first, *rest = (Address(each) for each in results)
    if target == SVD:
        high, low = max(rows, columns), min(rows, columns)
        left, right = rest or (0, 0)
        if rows < columns:
            left, right = right, left
        parameters: Record = SingularValues(
            source=a,
            values=first,
            left=left,
            right=right,
            rows=high,
            columns=low,
            transposed=int(rows < columns),
            with_vectors=int(config["vectors"]),
        )
        return singular_values(kind), parameters, singular_values_scratch_bytes(high, low, kind)
    if target == EIGH:
        vectors = rest[0] if rest else 0
        parameters = Eigenvalues(
            source=a, values=first, vectors=vectors, size=rows, with_vectors=int(config["vectors"])
        )
        return eigenvalues(kind), parameters, eigenvalues_scratch_bytes(rows, kind)
    if target == QR:
        width = rows if config["full"] else min(rows, columns)
        parameters = OrthogonalFactors(source=a, q=first, r=rest[0], rows=rows, columns=columns, width=width)
        return orthogonal_factors(kind), parameters, orthogonal_factors_scratch_bytes(rows, columns, kind)
    if target == LU:
        parameters = Factors(source=a, factors=first, order=rest[0], sign=rest[1], size=rows)
        return triangular_factors(kind), parameters, 0
    sides = instruction.operands[1].array_shape.dimensions[-1]
    parameters = LinearSystem(a=a, b=others[0], x=first, size=rows, right_sides=sides)
    return solution(kind), parameters, solution_scratch_bytes(rows, sides, kind)
