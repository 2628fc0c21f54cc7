"""Lowers cholesky and triangular-solve: a unit for each matrix, or for a block of its right-hand sides."""

from __future__ import annotations

from math import prod

from engine.codelets.factors.cholesky import Cholesky, cholesky
from engine.codelets.factors.triangular_solve import (
    encode_triangular_solve,
    triangular_solve,
    triangular_solve_scratch_bytes,
)
from engine.ir import Instruction
from engine.lower.context import Context, Value, lowering
from engine.lower.conversions import in_type, in_type_of
from engine.program.building.nests import accumulated_in
from engine.program.program import Address, Buffer, Partition, Span, WorkEstimate
from engine.program.work.codelet_work import CodeletWork

SMALL, SMALL_SOLVE = 1 << 15, 1 << 18
"""Multiply-adds of factors, and of solves (idle lanes included), below which one worker runs all units."""


@lowering("cholesky")
def lower_cholesky(context: Context, instruction: Instruction) -> Value:
    """Factors each matrix; 16-bit floats are computed in f32 and rounded once."""
    shape = instruction.array_shape
    kind = accumulated_in(shape.element_type)
    result, wide = _targets(context, instruction, kind)
    source = in_type(context, instruction.operands[0], kind)
    if not shape.elements:
        return result
    size, matrices = shape.dimensions[-1], prod(shape.dimensions[:-2])
    parameters = Cholesky(source=Address(source), target=Address(wide), size=size, lower=instruction["lower"])
    by_matrix = Partition(size * size, matrices, 1)
    work_estimate = matrices * size**3 // 3
    work, spans = CodeletWork(cholesky(kind), parameters), ([Span(source, by_matrix)], [Span(wide, by_matrix)])
    estimate = WorkEstimate({"cholesky": work_estimate}, 0, kind)
    context.emit_for(instruction, work, matrices, *spans, estimate, one_worker=work_estimate < SMALL)
    in_type_of(context, instruction, result, wide)
    return result


@lowering("triangular-solve")
def lower_triangular_solve(context: Context, instruction: Instruction) -> Value:
    """Solves for any side, triangle and transposition; 16-bit floats are computed in f32 and rounded once."""
    a_shape, shape = (o.array_shape for o in instruction.operands)
    kind = accumulated_in(shape.element_type)
    result, wide = _targets(context, instruction, kind)
    a, b = (in_type(context, o, kind) for o in instruction.operands)
    size, matrices = a_shape.dimensions[-1], prod(shape.dimensions[:-2])
    right_sides = shape.dimensions[-1] if instruction["left_side"] else shape.dimensions[-2]
    names = ("left_side", "lower", "unit_diagonal", "transpose_a")
    if not size or not shape.elements:
        return result
    parameters = encode_triangular_solve(
        (Address(a), Address(b), Address(wide)),
        kind,
        size=size,
        right_sides=right_sides,
        **{name: instruction[name] for name in names},
    )
    work_estimate = matrices * right_sides * size**2 // 2
    codelet = triangular_solve(kind)
    scratch_bytes = triangular_solve_scratch_bytes(size, parameters.block, kind)
    work = CodeletWork(codelet, parameters, scratch=scratch_bytes)
    estimate, units = WorkEstimate({"triangular-solve": work_estimate}, 0, kind), matrices * parameters.blocks
    one_worker = units * parameters.block * size**2 // 2 < SMALL_SOLVE
    context.emit_for(instruction, work, units, [a, b], [wide], estimate, one_worker=one_worker)
    in_type_of(context, instruction, result, wide)
    return result


def _targets(context: Context, instruction: Instruction, kind: str) -> tuple[Buffer, Buffer]:
    """The result's buffer, and the one in which it is computed."""
    result = context.result_buffer(instruction)
    shape = instruction.array_shape
    if shape.element_type == kind:
        return result, result
    return result, context.new_buffer(f"{instruction.name}.{kind}", shape.with_type(kind))
