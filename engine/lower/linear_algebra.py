"""Lowers cholesky, triangular-solve and factorizations: a unit for each matrix, or a block of its right-hand sides."""

from __future__ import annotations

from math import prod

from engine.ir import Instruction
from engine.ir.device_operations import config_of, target_of
from engine.ir.factorizations import EIGH, FACTORIZATIONS, LU, QR, SVD, factorization_shapes
from engine.lower.context import Context, Value, custom_call, lowering
from engine.program.nests import accumulated_in
from engine.program.program import Address, Buffer, Partition, Span, WorkEstimate
from engine.program.work.factors import CholeskyWork, FactorizationWork, SolveWork

SIDES, UNIT_SIDES = 8, {"f32": 16, "f64": 8, "c64": 32, "c128": 32}
"""Right-hand sides that are solved together, and those of one unit, which the host fits to its vectors."""
SMALL, SMALL_SOLVE = 1 << 15, 1 << 18
"""Multiply-adds of factors, and of solves (idle lanes included), below which one worker runs all units."""
MULTIPLY_ADDS = {SVD: 8.0, EIGH: 4.0, QR: 2.0, LU: 1 / 3}
"""Multiply-adds as a multiple of n cubed, for an n x n matrix; a solution counts as LU, and n squared per right-hand
side.
"""


@lowering("cholesky")
def lower_cholesky(context: Context, instruction: Instruction) -> Value:
    """Factors each matrix."""
    shape = instruction.array_shape
    kind, source = shape.element_type, context.buffer(instruction.operands[0])
    result = context.result_buffer(instruction)
    if not shape.elements:
        return result
    size, matrices = shape.dimensions[-1], prod(shape.dimensions[:-2])
    work = CholeskyWork(Address(source), Address(result), size, instruction["lower"], kind)
    by_matrix = Partition(size * size, matrices, 1)
    work_estimate = matrices * size**3 // 3
    spans = [Span(source, by_matrix)], [Span(result, by_matrix)]
    estimate = WorkEstimate({"cholesky": work_estimate}, 0, kind)
    context.emit_for(instruction, work, matrices, *spans, estimate, one_worker=work_estimate < SMALL)
    return result


@lowering("triangular-solve")
def lower_triangular_solve(context: Context, instruction: Instruction) -> Value:
    """Solves for any side, triangle and transposition."""
    a_shape, shape = (o.array_shape for o in instruction.operands)
    kind, result = shape.element_type, context.result_buffer(instruction)
    a, b = (context.buffer(o) for o in instruction.operands)
    size, matrices = a_shape.dimensions[-1], prod(shape.dimensions[:-2])
    right_sides = shape.dimensions[-1] if instruction["left_side"] else shape.dimensions[-2]
    names = ("left_side", "lower", "unit_diagonal", "transpose_a")
    if not size or not shape.elements:
        return result
    computed = accumulated_in(kind)
    block = UNIT_SIDES[computed]
    if computed in ("f32", "f64"):  # by halves of units where few sides are left
        block = min(block, -(-right_sides // SIDES) * SIDES)
    work = SolveWork(
        *(Address(a), Address(b), Address(result), kind, matrices, size, right_sides),
        **{name: instruction[name] for name in names},
        block=block,
    )
    estimate = WorkEstimate({"triangular-solve": matrices * right_sides * size**2 // 2}, 0, kind)
    small = work.multiply_adds < SMALL_SOLVE
    context.emit_for(instruction, work, work.unit_count, [a, b], [result], estimate, one_worker=small)
    return result


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
