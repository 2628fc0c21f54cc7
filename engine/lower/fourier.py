"""Lowers fft: one compute set for each transformed dimension, in place after the first."""

from __future__ import annotations

from math import prod

import numpy as np

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
from engine.program.program import Address, Buffer, ComputeSet, Effort, Relocation, Span
from engine.program.work.words import Words

SMALL = 1 << 13
"""Elements below which one unit does it all."""
MOST_UNITS = 64
KINDS = {"FFT": (COMPLEX, COMPLEX), "IFFT": (COMPLEX, COMPLEX), "RFFT": (REAL, HALF), "IRFFT": (HALF, REAL)}
"""What the last dimension's lines are, before and after."""


@lowering("fft")
def lower_fft(context: Context, instruction: Instruction) -> Value:
    """The last dimension first, but for a real result last: only it is real at one end."""
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
    """One dimension of the transform."""
    complex_type = "c64" if source[1].element_type in ("c64", "f32") else "c128"
    parameters, units = _encode(dimension, length, ends, source[1], target[1])
    parameters[Fourier.INVERSE] = instruction["fft_type"] in ("IFFT", "IRFFT")
    table = context.constant(fourier_table(length), f"{instruction.name}.roots.{length}")
    buffers = {Fourier.SOURCE: source[0], Fourier.TARGET: target[0], Fourier.TABLE: table}
    context.emit(
        ComputeSet(
            f"{instruction.name}.{dimension}",
            Words.of(
                *(fourier(complex_type), parameters),
                [Relocation(int(word), Address(buffer)) for word, buffer in buffers.items()],
                scratch_bytes=fourier_scratch_bytes(length),
            ),
            units,
            [Span(source[0]), Span(table)],
            [Span(target[0])],
            Effort({"fft": target[1].elements * len(fourier_plan(length)[1])}, 0, complex_type),
            op_name=instruction.op_name,
            one_worker=units == 1,
        )
    )


def _encode(dimension: int, length: int, ends: tuple[int, int], source: Shape, target: Shape) -> tuple[np.ndarray, int]:
    """Parameters, addresses left out, and the number of units."""
    transformed, factors = fourier_plan(length)
    outer, columns = prod(source.dimensions[:dimension]), prod(source.dimensions[dimension + 1 :])
    lines = outer * columns
    units = 1 if lines * length < SMALL else min(MOST_UNITS, lines)
    lines_in_unit = -(-lines // units)
    places: list[int] = []
    for shape in (source, target):
        item, stride = shape.dtype.itemsize, row_major_strides(shape)[dimension]
        places += [stride * item, stride * shape.dimensions[dimension] * item, item]
    parameters = np.zeros(Fourier.WORDS, np.int64)
    parameters[Fourier.LENGTH :] = (
        *(length, transformed, *ends, 0),
        *(*places, columns, lines, lines_in_unit, len(factors)),
    )
    return np.concatenate([parameters, np.array(factors, np.int64)]), -(-lines // lines_in_unit)
