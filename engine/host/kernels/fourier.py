"""Codelets and parameter blocks of Fourier transforms."""

from __future__ import annotations

from math import prod

from engine.codelets.fourier.butterflies import FourierLanes, passing
from engine.codelets.fourier.fourier import HEAD, MIRRORED, NUMBERS, REALS, SPACING, Factor, Fourier, Side, fourier
from engine.codelets.language.record import block
from engine.codelets.language.scratch import space_of
from engine.host.encoded import Encoded
from engine.ir.affine import row_major_strides
from engine.machine_code.processor import registers
from engine.program.fourier_plan import HALF, PLAIN, REAL, fourier_table, radices_of, table_places
from engine.program.work.base import Array
from engine.program.work.fourier import FourierWork


def encoded_fourier(work: FourierWork) -> Encoded:
    """The header, then the passes. Radix 8 needs 32 registers, and a table of its own."""
    plan, lanes = work.plan, FourierLanes(work.plan.computed, work.width)
    radices = radices_of(plan.transformed, registers() >= 32)
    assert radices is not None
    plan = plan._replace(radices=radices)
    chirp, kernel, half, scale = table_places(plan)
    parameters = Fourier(
        source=_side(work.source, work, work.ends[0]),
        target=_side(work.target, work, work.ends[1]),
        table=work.table if plan == work.plan else fourier_table(plan),
        length=plan.length,
        transformed=plan.transformed,
        packing=plan.packing,
        inverse=int(work.inverse),
        chirp=chirp,
        kernel=kernel,
        half=half,
        scale=scale,
        inner=work.lines[1],
        groups_of_row=work.groups_of_row,
        groups=work.groups,
        groups_in_unit=work.groups_in_unit,
        passes=len(radices),
    )
    factors = [Factor(radix=radix) for radix in radices]
    words = (Fourier.WORDS + Factor.WORDS * number + Factor.CODELET for number in range(len(factors)))
    calls = tuple((at, passing(radix, lanes)) for at, radix in zip(words, radices, strict=True))
    line_bytes = 2 * lanes.bytes * (plan.transformed + SPACING)  # of the elements in each lane
    scratch = space_of(*HEAD, line_bytes, line_bytes)
    return Encoded.of(fourier(work.element_type, lanes), block(parameters, factors), scratch, calls)


def _side(array: Array, work: FourierWork, kind: int) -> Side:
    """Layout of the lines along a dimension, for the codelet; pairs of real numbers are viewed as complex ones."""
    dimension, plan, is_last = work.dimension, work.plan, prod(array.shape.dimensions[work.dimension + 1 :]) == 1
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
        array=array.address,
        outer=0 if is_last else line,
        lane=line if is_last else item,
        element=element,
        kind=stored,
        count=count,
    )
