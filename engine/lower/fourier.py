"""Lowers fft: one compute set for each transformed dimension, in place after the first."""

from __future__ import annotations

from math import prod

from engine.codelets.fourier import (
    COMPLEX,
    HALF,
    REAL,
    Fourier,
    fourier,
    fourier_plan,
    fourier_scratch_bytes,
    fourier_table,
)
from engine.ir import Instruction, Shape
from engine.ir.affine import row_major_strides
from engine.lower.context import Context, Value, lowering
from engine.machine_code.costs import MOST_UNITS
from engine.program.program import Address, Buffer, WorkEstimate
from engine.program.work.codelet_work import CodeletWork

SMALL = 1 << 13
"""Elements below which one unit does it all."""
KINDS = {"FFT": (COMPLEX, COMPLEX), "IFFT": (COMPLEX, COMPLEX), "RFFT": (REAL, HALF), "IRFFT": (HALF, REAL)}
"""The kinds of the last dimension's lines, before and after."""


@lowering("fft")
def lower_fft(context: Context, instruction: Instruction) -> Value:
    """Transforms the last dimension first, but last for a real result: only that dimension has a real end."""
    result = context.result_buffer(instruction)
    shape, (operand,) = instruction.array_shape, instruction.operands
    if not shape.elements:
        return result
    lengths, name = instruction["fft_length"], instruction["fft_type"]
    dimensions = list(range(shape.rank - len(lengths), shape.rank))
    order = dimensions if name == "IRFFT" else dimensions[::-1]
    current, current_shape = context.buffer(operand), operand.array_shape
    for number, dimension in enumerate(order):
        ends = KINDS[name] if dimension == shape.rank - 1 else (COMPLEX, COMPLEX)
        target, target_shape = result, shape
        if name == "IRFFT" and number < len(order) - 1:
            target, target_shape = current, current_shape
            if number == 0:
                target = context.new_buffer(f"{instruction.name}.spectrum", target_shape)
        length = lengths[dimension - dimensions[0]]
        _emit(context, instruction, dimension, length, ends, (current, current_shape), (target, target_shape))
        current, current_shape = target, target_shape
    return result


def _emit(
    context: Context,
    instruction: Instruction,
    dimension: int,
    length: int,
    ends: tuple[int, int],
    source: tuple[Buffer, Shape],
    target: tuple[Buffer, Shape],
) -> None:
    """Emits one dimension of the transform."""
    complex_type = "c64" if source[1].element_type in ("c64", "f32") else "c128"
    table = context.constant(fourier_table(length), f"{instruction.name}.roots.{length}")
    _, factors = fourier_plan(length)
    inverse = instruction["fft_type"] in ("IFFT", "IRFFT")
    parameters, units = _encode(dimension, length, ends, source, target, table, inverse)
    work = CodeletWork(fourier(complex_type), parameters, factors, scratch_bytes=fourier_scratch_bytes(length))
    estimate = WorkEstimate({"fft": target[1].elements * len(factors)}, 0, complex_type)
    spans = [source[0], table], [target[0]]
    context.emit_for(instruction, work, units, *spans, estimate, suffix=f".{dimension}", one_worker=units == 1)


def _encode(
    dimension: int,
    length: int,
    ends: tuple[int, int],
    source_at: tuple[Buffer, Shape],
    target_at: tuple[Buffer, Shape],
    table: Buffer,
    inverse: bool,
) -> tuple[Fourier, int]:
    """The parameters, and the number of units."""
    (source_buffer, source), (target_buffer, target) = source_at, target_at
    transformed, factors = fourier_plan(length)
    outer, columns = prod(source.dimensions[:dimension]), prod(source.dimensions[dimension + 1 :])
    lines = outer * columns
    units = 1 if lines * length < SMALL else min(MOST_UNITS, lines)
    lines_in_unit = -(-lines // units)
    strides = [row_major_strides(shape)[dimension] * shape.dtype.itemsize for shape in (source, target)]
    parameters = Fourier(
        source=Address(source_buffer),
        target=Address(target_buffer),
        table=Address(table),
        length=length,
        transformed=transformed,
        source_kind=ends[0],
        target_kind=ends[1],
        inverse=inverse,
        source_stride=strides[0],
        source_outer=strides[0] * source.dimensions[dimension],
        source_inner=source.dtype.itemsize,
        target_stride=strides[1],
        target_outer=strides[1] * target.dimensions[dimension],
        target_inner=target.dtype.itemsize,
        inner=columns,
        lines=lines,
        lines_in_unit=lines_in_unit,
        factors=len(factors),
    )
    return parameters, -(-lines // lines_in_unit)
