"""Bilinear interpolation of images, and its gradient: weighted sums of few rows, and of few columns of the sums.

target[n, i, j] = sum over the taps of j of weight * (sum over the taps of i of weight * source[n, row, column]), in the
order of taps, for all channels. A result without taps is zero. Elements that no tap names are not read, so a NaN there
has no effect.
"""

from __future__ import annotations

from typing import Any

from engine.codelets.language import vector
from engine.codelets.language.build import Codelet, inner
from engine.codelets.language.encoded import Encoded
from engine.codelets.language.intrinsic import Float32, intrinsic
from engine.codelets.language.loops import for_vectors
from engine.codelets.language.memory import I64, load_i64, pointer
from engine.codelets.language.record import Address, Record, Table, block
from engine.codelets.rows.row_sums import clear
from engine.machine_code.abi import RESERVED_SCRATCH
from engine.machine_code.llvm import ir
from engine.program.work.interpolation import InterpolationWork

TAP_WORDS = 3
"""Words of an element's taps: the first element that it reads, the number of taps, and the first weight's number."""


class Interpolation(Record):
    """Parameters of `interpolate`. Unit: UNIT_ROWS rows of the result."""

    source: Address = 0
    target: Address = 0
    row_taps: Table  # int64 [HEIGHT, TAP_WORDS]
    row_weights: Table  # float32
    column_taps: Table
    column_weights: Table
    images: int
    height: int  # of the result
    width: int
    source_height: int
    source_width: int
    channels: int
    unit_rows: int


def _sums(of_two: bool, adds: bool) -> Any:
    """An intrinsic: target = a * weight (+ b * weight_b) (+ target), `count` elements."""

    @intrinsic
    def sums(
        builder: ir.IRBuilder,
        target: ir.Value,
        a: ir.Value,
        weight: Float32,
        b: ir.Value,
        weight_b: Float32,
        count: ir.Value,
    ) -> None:
        factor, factor_b = vector.splat(builder, weight), vector.splat(builder, weight_b)

        def sum_vector(first: ir.Value, _: int, mask: ir.Value | None) -> None:
            offset = builder.shl(first, I64(2))
            to, total = builder.add(target, offset), vector.load_vector(builder, builder.add(a, offset), mask)
            if adds:
                total = vector.multiply_add(builder, total, factor, vector.load_vector(builder, to, mask))
            else:
                total = builder.fmul(total, factor)
            if of_two:
                second = vector.load_vector(builder, builder.add(b, offset), mask)
                total = vector.multiply_add(builder, second, factor_b, total)
            vector.store_vector(builder, total, to, mask)

        for_vectors(builder, count, sum_vector)

    return sums


sum_one, add_one, sum_two, add_two = _sums(False, False), _sums(False, True), _sums(True, False), _sums(True, True)


@inner
def sum_taps(target: int, source: int, pitch: int, taps: int, weights: int, count: int) -> None:
    """Computes the weighted sum of lines, `pitch` bytes apart, that an element's taps name; `count` elements each."""
    line, named = source + pitch * load_i64(taps), load_i64(taps + 8)
    weight = pointer(weights + 4 * load_i64(taps + 16), "float32")
    if named == 0:
        clear(target, count)
    elif named == 1:
        sum_one(target, line, weight[0], line, weight[0], count)
    else:
        sum_two(target, line, weight[0], line + pitch, weight[1], count)
    for k in range(2, named - 1, 2):
        add_two(target, line + k * pitch, weight[k], line + (k + 1) * pitch, weight[k + 1], count)
    if named > 2 and named % 2 == 1:
        add_one(target, line + (named - 1) * pitch, weight[named - 1], line, weight[0], count)


def _interpolate(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Computes units lo <= unit < hi of an Interpolation."""
    given, summed = Interpolation.read(parameters), scratch + RESERVED_SCRATCH
    line, pitch = given.channels * given.source_width, 4 * given.channels
    last = given.images * given.height
    target = given.target + lo * given.unit_rows * given.width * pitch
    for row in range(lo * given.unit_rows, min(hi * given.unit_rows, last)):
        source = given.source + row // given.height * (4 * line * given.source_height)
        taps = given.row_taps + 8 * TAP_WORDS * (row % given.height)
        sum_taps(summed, source, 4 * line, taps, given.row_weights, line)
        for column in range(given.width):
            at = given.column_taps + 8 * TAP_WORDS * column
            sum_taps(target, summed, pitch, at, given.column_weights, given.channels)
            target += pitch


interpolate = Codelet(_interpolate, "interpolate", in_vectors=True)


def interpolation_scratch_bytes(width: int, channels: int) -> int:
    """The bytes of scratch for images of that width."""
    return RESERVED_SCRATCH + 4 * width * channels


def encoded_interpolation(work: InterpolationWork) -> Encoded:
    """The fields of `Interpolation`."""
    _, source_height, source_width, channels = work.source.shape.dimensions
    images, height, width, _ = work.target.shape.dimensions
    parameters = Interpolation.of(
        work,
        row_taps=work.rows.spans,
        row_weights=work.rows.weights,
        column_taps=work.columns.spans,
        column_weights=work.columns.weights,
        images=images,
        height=height,
        width=width,
        source_height=source_height,
        source_width=source_width,
        channels=channels,
    )
    return Encoded.of(interpolate, block(parameters), interpolation_scratch_bytes(source_width, channels))
