"""Lowers fft: one compute set for each transformed dimension, in place after the first."""

from __future__ import annotations

from math import prod

from engine.ir import Instruction, shape_of
from engine.lower.context import Context, Value, lowering
from engine.program.fourier_plan import COMPLEX, HALF, REAL, fourier_plan, fourier_table
from engine.program.program import Address, Buffer, WorkEstimate
from engine.program.work.base import Array
from engine.program.work.fourier import FourierWork, width_of

LANES = 8
"""Lines transformed together, of f32, which the host fits to its vectors."""
SMALL = 1 << 13
"""Elements below which one worker transforms all lines."""
KINDS = {"FFT": (COMPLEX, COMPLEX), "IFFT": (COMPLEX, COMPLEX), "RFFT": (REAL, HALF), "IRFFT": (HALF, REAL)}
"""The kinds of the last dimension's lines, before and after."""


@lowering("fft")
def lower_fft(context: Context, instruction: Instruction) -> Value:
    """Transforms the last dimension first, or last for a real result: only that dimension has lines of real numbers."""
    result = context.result_buffer(instruction)
    shape, (operand,) = instruction.array_shape, instruction.operands
    if not shape.elements:
        return result
    lengths, name = instruction["fft_length"], instruction["fft_type"]
    dimensions = list(range(shape.rank - len(lengths), shape.rank))
    order = dimensions if name == "IRFFT" else dimensions[::-1]
    current = Array(Address(context.buffer(operand)), operand.array_shape)
    for number, dimension in enumerate(order):
        ends = KINDS[name] if dimension == shape.rank - 1 else (COMPLEX, COMPLEX)
        target = Array(Address(result), shape)
        if name == "IRFFT" and number < len(order) - 1:
            target = current
            if number == 0:
                spectrum = Buffer(f"{instruction.name}.spectrum", current.shape)
                target = Array(Address(spectrum), current.shape)
        _emit(context, instruction, dimension, lengths[dimension - dimensions[0]], ends, current, target)
        current = target
    return result


def _emit(
    context: Context,
    instruction: Instruction,
    dimension: int,
    length: int,
    ends: tuple[int, int],
    source: Array,
    target: Array,
) -> None:
    """Emits one dimension of the transform."""
    element_type = "c64" if source.shape.element_type in ("c64", "f32") else "c128"
    before, after = prod(source.shape.dimensions[:dimension]), prod(source.shape.dimensions[dimension + 1 :])
    plan = fourier_plan(length, ends, element_type)
    numbers = fourier_table(plan)
    table = Buffer(f"{instruction.name}.roots.{length}", shape_of(numbers), "constant", value=numbers)
    inverse, width = (
        instruction["fft_type"] in ("IFFT", "IRFFT"),
        width_of(plan, before if after == 1 else after, LANES),
    )
    work = FourierWork(source, target, Address(table), dimension, ends, inverse, plan, width)
    estimate = WorkEstimate({"fft": target.shape.elements * len(plan.radices)}, 0, element_type)
    units, few = work.unit_count, before * after * length < SMALL
    spans = [source.address.buffer, table], [target.address.buffer]
    context.emit_for(instruction, work, units, *spans, estimate, suffix=f".{dimension}", one_worker=few or units == 1)
