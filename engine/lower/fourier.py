"""Lowers fft: one compute set for each transformed dimension, in place after the first."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from engine.codelets.fourier.butterflies import passing
from engine.codelets.fourier.fourier import HEAD, MIRRORED, NUMBERS, REALS, Factor, Fourier, Side, fourier
from engine.codelets.fourier.fourier_plans import (
    COMPLEX,
    HALF,
    PLAIN,
    REAL,
    FourierPlan,
    fourier_plan,
    fourier_table,
    table_places,
)
from engine.codelets.language.scratch import space_of
from engine.ir import Instruction, Shape
from engine.ir.affine import row_major_strides
from engine.lower.context import Context, Value, lowering
from engine.machine_code.costs import MOST_UNITS
from engine.program.program import Address, Buffer, WorkEstimate
from engine.program.work.codelet_work import CodeletWork

SMALL = 1 << 13
"""Elements below which one worker transforms all lines."""
KINDS = {"FFT": (COMPLEX, COMPLEX), "IFFT": (COMPLEX, COMPLEX), "RFFT": (REAL, HALF), "IRFFT": (HALF, REAL)}
"""The kinds of the last dimension's lines, before and after."""


class ShapedBuffer(NamedTuple):
    """A buffer and its shape."""

    buffer: Buffer
    shape: Shape


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
    current = ShapedBuffer(context.buffer(operand), operand.array_shape)
    for number, dimension in enumerate(order):
        ends = KINDS[name] if dimension == shape.rank - 1 else (COMPLEX, COMPLEX)
        target = ShapedBuffer(result, shape)
        if name == "IRFFT" and number < len(order) - 1:
            target = current
            if number == 0:
                target = ShapedBuffer(context.new_buffer(f"{instruction.name}.spectrum", current.shape), current.shape)
        _emit(context, instruction, dimension, lengths[dimension - dimensions[0]], ends, current, target)
        current = target
    return result


def _emit(
    context: Context,
    instruction: Instruction,
    dimension: int,
    length: int,
    ends: tuple[int, int],
    source: ShapedBuffer,
    target: ShapedBuffer,
) -> None:
    """Emits one dimension of the transform."""
    element_type = "c64" if source.shape.element_type in ("c64", "f32") else "c128"
    before, after = prod(source.shape.dimensions[:dimension]), prod(source.shape.dimensions[dimension + 1 :])
    rows, inner = (1, before) if after == 1 else (before, after)
    plan = fourier_plan(length, ends, element_type, inner)
    groups_of_row = -(-inner // plan.lanes.width)
    groups = rows * groups_of_row
    groups_in_unit = -(-groups // MOST_UNITS)
    table = context.constant(fourier_table(plan), f"{instruction.name}.roots.{length}")
    chirp, kernel, half, scale = table_places(plan)
    parameters = Fourier(
        source=_side(source, dimension, ends[0], after == 1, plan),
        target=_side(target, dimension, ends[1], after == 1, plan),
        table=Address(table),
        length=plan.length,
        transformed=plan.transformed,
        packing=plan.packing,
        inverse=int(instruction["fft_type"] in ("IFFT", "IRFFT")),
        chirp=chirp,
        kernel=kernel,
        half=half,
        scale=scale,
        inner=inner,
        groups_of_row=groups_of_row,
        groups=groups,
        groups_in_unit=groups_in_unit,
        passes=len(plan.radices),
    )
    factors = tuple(Factor(radix=radix) for radix in plan.radices)
    words = (Fourier.WORDS + Factor.WORDS * number + Factor.CODELET for number in range(len(factors)))
    calls = tuple((at, passing(radix, plan.lanes)) for at, radix in zip(words, plan.radices, strict=True))
    scratch = space_of(*HEAD, plan.line_bytes, plan.line_bytes)
    codelet = fourier(element_type, plan.lanes)
    work = CodeletWork(codelet, parameters, factors, scratch=scratch, calls=calls)
    estimate = WorkEstimate({"fft": target.shape.elements * len(plan.radices)}, 0, element_type)
    units, few = -(-groups // groups_in_unit), before * after * length < SMALL
    spans = [source.buffer, table], [target.buffer]
    context.emit_for(instruction, work, units, *spans, estimate, suffix=f".{dimension}", one_worker=few or units == 1)


def _side(array: ShapedBuffer, dimension: int, kind: int, is_last: bool, plan: FourierPlan) -> Side:
    """Layout of the lines along a dimension, for the codelet; pairs of real numbers are viewed as complex ones."""
    shape, item = array.shape, array.shape.dtype.itemsize
    count = shape.dimensions[dimension]
    element = row_major_strides(shape)[dimension] * item
    line = count * element
    stored = MIRRORED if kind == HALF else REALS if kind == REAL else NUMBERS
    if plan.packing != PLAIN:
        stored = NUMBERS
        if kind == REAL:
            count, element = count // 2, 2 * element
    return Side(
        array=Address(array.buffer),
        outer=0 if is_last else line,
        lane=line if is_last else item,
        element=element,
        kind=stored,
        count=count,
    )
