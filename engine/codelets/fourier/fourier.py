"""HLO fft along one dimension: complex to complex, real to half a spectrum, half a spectrum to real; any length.

Each lane of a vector transforms a line of its own, by passes of `butterflies` that a FourierPlan has.
Unit: some groups of as many lines as there are lanes. There are rows of `inner` lines; strides are in bytes.
"""

from __future__ import annotations

from functools import cache
from math import prod

from engine.codelets.fourier.butterflies import FourierLanes, Pass, passing
from engine.codelets.fourier.spectra import divided, multiplied, paired, parted, tangled, untangled
from engine.codelets.language.build import Codelet, inner
from engine.codelets.language.encoded import Encoded
from engine.codelets.language.lanes import ITEM_BYTES
from engine.codelets.language.memory import call_code, pointer, store_i64
from engine.codelets.language.record import Address, Record, block
from engine.codelets.language.register_transpose import LANES, lanes_transposed
from engine.codelets.language.scratch import after, space_of
from engine.codelets.products.pack import fill_progression
from engine.ir.affine import row_major_strides
from engine.machine_code.abi import RESERVED_SCRATCH
from engine.machine_code.processor import registers
from engine.program.fourier_plan import HALF, PLAIN, REAL, TANGLED, UNTANGLED, fourier_table, radices_of, table_places
from engine.program.work.base import Array
from engine.program.work.fourier import FourierWork

SPACING = 17
"""Padding after a line in scratch: a half spectrum needs one element; more put the two copies into other cache sets."""
NUMBERS, REALS, MIRRORED = range(3)
"""Layouts of a line in memory: complex numbers, real numbers, or the half of a spectrum whose other half mirrors it."""
HEAD = 8 * LANES, 8 * LANES, 8 * Pass.WORDS
"""Bytes of the areas of scratch before the elements: two tables of offsets, and the parameters of a pass."""


class Side(Record):
    """Layout of lines in memory."""

    array: Address = 0
    outer: int  # from row to row
    lane: int  # from line to line
    element: int  # from one complex number of a line, or real one of REALS, to the next
    kind: int
    count: int  # numbers of a line in memory


class Fourier(Record):
    """The header of the parameters; a Factor for each pass follows."""

    source: Side
    target: Side
    table: Address = 0
    length: int
    transformed: int  # the length, or Bluestein's power of two
    packing: int
    inverse: int
    chirp: int  # bytes into the table, as the next three
    kernel: int
    half: int
    scale: int
    inner: int
    groups_of_row: int
    groups: int
    groups_in_unit: int
    passes: int


class Factor(Record):
    """A pass: its radix and codelet."""

    radix: int
    codelet: Address = 0


@cache
def fourier(element_type: str, lanes: FourierLanes) -> Codelet:
    """The codelet for lines of c64 (and f32) or c128 (and f64)."""
    complex_name, real_name = ("complex64", "float32") if element_type == "c64" else ("complex128", "float64")
    part_name = "float32" if lanes.element_type == "f32" else "float64"
    width, size, item = lanes.width, 2 * lanes.bytes, ITEM_BYTES[lanes.element_type]
    converts = part_name != real_name
    complex_bytes = 8 if element_type == "c64" else 16
    transposes = lanes.element_type == "f32" and width == LANES
    multiply, scale = multiplied(lanes), divided(lanes)
    tangle, untangle, part, pair = tangled(lanes), untangled(lanes), parted(lanes), paired(lanes)
    transpose_lanes = lanes_transposed("f32")

    @inner
    def load_some(layout: int, source: int, x: int, lines: int) -> None:
        """Loads numbers one by one."""
        side = Side.read(layout)
        for line in range(lines):
            at, values = source + line * side.lane, pointer(x + line * item, part_name)
            for k in range(side.count):
                if side.kind == REALS:
                    values[2 * width * k] = pointer(at + k * side.element, real_name)[0]
                    values[2 * width * k + width] = 0
                else:
                    number = pointer(at + k * side.element, complex_name)[0]
                    values[2 * width * k] = number.real
                    values[2 * width * k + width] = number.imag

    @inner
    def mirror(x: int, begin: int, length: int) -> None:
        """Writes the rest of a spectrum, from its first numbers."""
        values = pointer(x, part_name)
        for k in range(begin, length):
            for lane in range(width):
                values[2 * width * k + lane] = values[2 * width * (length - k) + lane]
                values[2 * width * k + width + lane] = -values[2 * width * (length - k) + width + lane]

    @inner
    def store_some(layout: int, target: int, x: int, begin: int, lines: int) -> None:
        """Stores numbers from number `begin` on, one by one."""
        side = Side.read(layout)
        for line in range(lines):
            at, values = target + line * side.lane, pointer(x + line * item, part_name)
            for k in range(begin, side.count):
                pointer(at + k * side.element, real_name)[0] = values[2 * width * k]
                if side.kind != REALS:
                    pointer(at + k * side.element, real_name)[1] = values[2 * width * k + width]

    @inner
    def load(layout: int, length: int, source: int, x: int, offsets: int, lines: int) -> None:
        """Loads the lines of a group. `layout` is the address of a Side."""
        side = Side.read(layout)
        if not converts and lines == width and side.kind == NUMBERS and side.lane == complex_bytes:
            for k in range(side.count):
                part(0, x + k * size, source + k * side.element)
        elif transposes and side.kind != REALS and side.element == complex_bytes:
            end = 2 * side.count
            for k in range(0, end, LANES):
                transpose_lanes(source + 4 * k, offsets, lines, min(LANES, end - k), x + 4 * LANES * k, 4 * LANES)
        else:
            load_some(layout, source, x, lines)
        if side.kind == MIRRORED:
            mirror(x, side.count, length)

    @inner
    def store(layout: int, target: int, x: int, offsets: int, lines: int) -> None:
        """Stores the lines of a group."""
        side = Side.read(layout)
        if not converts and lines == width and side.kind == NUMBERS and side.lane == complex_bytes:
            for k in range(side.count):
                pair(0, x + k * size, target + k * side.element)
        elif transposes and side.kind != REALS and side.element == complex_bytes:
            whole = 2 * side.count // LANES * LANES
            for k in range(0, whole, LANES):
                transpose_lanes(x + 4 * LANES * k, offsets, LANES, lines, target + 4 * k, side.lane)
            store_some(layout, target, x, whole // 2, lines)
        else:
            store_some(layout, target, x, 0, lines)

    @inner
    def transform(parameters: int, x: int, y: int, first: int, block: int) -> int:
        """Computes the spectrum of the elements at x, in place or at y; returns its address."""
        given = Fourier.read(parameters)
        rest, stride, roots = given.transformed, 1, given.table
        for number in range(given.passes):
            factor = Factor.read(parameters + 8 * Fourier.WORDS, number)
            rest //= factor.radix
            store_i64(block + 8 * Pass.SOURCE, x)
            store_i64(block + 8 * Pass.TARGET, y)
            store_i64(block + 8 * Pass.FIRST, first)
            store_i64(block + 8 * Pass.REST, rest)
            store_i64(block + 8 * Pass.STRIDE, stride)
            store_i64(block + 8 * Pass.ROOTS, roots)
            call_code(factor.codelet, block, 0, 0, 0)
            roots += 2 * item * (rest - 1) * (factor.radix - 1)
            stride *= factor.radix
            x, y = y, x
        return x

    @inner
    def spectrum(parameters: int, x: int, y: int, block: int) -> int:
        """Transforms a line of any length, complex or real."""
        given = Fourier.read(parameters)
        length, first = given.length, lanes_bytes if given.inverse else 0
        if given.packing == TANGLED:
            tangle(0, x, given.table + given.half, length)
        if given.transformed == length:
            found = transform(parameters, x, y, first, block)
        else:
            multiply(first, x, given.table + given.chirp, length)
            values = pointer(x, part_name)
            for k in range(2 * width * length, 2 * width * given.transformed):
                values[k] = 0
            there = transform(parameters, x, y, first, block)
            multiply(first, there, given.table + given.kernel, given.transformed)
            found = transform(parameters, there, x if there == y else y, lanes_bytes - first, block)
            multiply(first, found, given.table + given.chirp, length)
        if given.packing == UNTANGLED:
            untangle(0, found, given.table + given.half, length)
        if given.inverse:
            scale(0, found, given.table + given.scale, length)
        return found

    lanes_bytes = lanes.bytes

    def transform_lines(parameters: int, lo: int, hi: int, scratch: int) -> None:
        given, source_offsets = Fourier.read(parameters), scratch + RESERVED_SCRATCH
        target_offsets = after(source_offsets, HEAD[0])
        block = after(target_offsets, HEAD[1])
        x = after(block, HEAD[2])
        y = after(x, size * (given.transformed + SPACING))
        fill_progression(source_offsets, LANES, given.source.lane)
        fill_progression(target_offsets, LANES, 4 * LANES)
        for group in range(lo * given.groups_in_unit, min(hi * given.groups_in_unit, given.groups)):
            i, j = group // given.groups_of_row, group % given.groups_of_row * width
            source = given.source.array + i * given.source.outer + j * given.source.lane
            target = given.target.array + i * given.target.outer + j * given.target.lane
            lines = min(width, given.inner - j)
            load(parameters + 8 * Fourier.SOURCE, given.length, source, x, source_offsets, lines)
            found = spectrum(parameters, x, y, block)
            store(parameters + 8 * Fourier.TARGET, target, found, target_offsets, lines)

    return Codelet(transform_lines, f"fourier_{element_type}_{lanes.element_type}x{width}", in_vectors=True)


def radices_here(length: int) -> tuple[int, ...] | None:
    """The radices of this processor: radix 8 needs 32 registers."""
    return radices_of(length, registers() >= 32)


def encoded_fourier(work: FourierWork) -> Encoded:
    """The header, then the passes. Other radices than the plan's need a table of their own."""
    plan, lanes = work.plan, FourierLanes(work.plan.computed, work.width)
    radices = radices_here(plan.transformed)
    assert radices is not None
    plan = plan._replace(radices=radices)
    parameters = Fourier.of(
        work,
        source=_side(work.source, work, work.ends[0]),
        target=_side(work.target, work, work.ends[1]),
        table=work.table if plan == work.plan else fourier_table(plan),
        length=plan.length,
        transformed=plan.transformed,
        packing=plan.packing,
        **dict(zip(("chirp", "kernel", "half", "scale"), table_places(plan), strict=True)),
        inner=work.lines[1],
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
