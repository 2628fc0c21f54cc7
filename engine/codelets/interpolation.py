"""Bilinear interpolation of images, and its gradient: weighted sums of few rows, and of few columns of the sums.

target[n, i, j] = sum over the taps of j of weight * (sum over the taps of i of weight * source[n, row, column]), in the
order of taps, for all channels. A result without taps is zero. Elements that no tap names are not read, so a NaN there
has no effect.
"""

from __future__ import annotations

from typing import Any

from engine.codelets.language import vector
from engine.codelets.language.build import codelet, inner
from engine.codelets.language.encoded import Encoded
from engine.codelets.language.intrinsic import Float32, intrinsic
from engine.codelets.language.memory import load_f32, load_i64
from engine.codelets.language.record import Address, Record, Table, block, word
from engine.machine_code.abi import RESERVED_SCRATCH
from engine.machine_code.llvm import ir
from engine.machine_code.processor import lanes
from engine.program.work.interpolation import InterpolationWork

LANES = lanes()
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


def _sums(of_two: bool, adds: bool, whole: bool) -> Any:
    """An intrinsic: target = a * weight (+ b * weight_b) (+ target), of a vector or only of its first `count` lanes."""

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
        mask = None if whole else vector.lane_mask(builder, count)
        factor, loaded = vector.splat(builder, weight), vector.load_vector(builder, a, mask)
        if adds:
            total = vector.multiply_add(builder, loaded, factor, vector.load_vector(builder, target, mask))
        else:
            total = builder.fmul(loaded, factor)
        if of_two:
            second = vector.load_vector(builder, b, mask)
            total = vector.multiply_add(builder, second, vector.splat(builder, weight_b), total)
        vector.store_vector(builder, total, target, mask)

    return sums


@intrinsic
def clear_vector(builder: ir.IRBuilder, target: ir.Value, count: ir.Value) -> None:
    """Sets the first `count` lanes of the vector at `target` to zero."""
    vector.store_vector(builder, vector.zeros(), target, vector.lane_mask(builder, count))


one, one_part = _sums(False, False, True), _sums(False, False, False)
add_one, add_one_part = _sums(False, True, True), _sums(False, True, False)
two, two_part = _sums(True, False, True), _sums(True, False, False)
add_two, add_two_part = _sums(True, True, True), _sums(True, True, False)


@inner
def sum_one(target: int, a: int, weight: float, adds: int, count: int) -> None:
    """target (+)= a * weight, `count` elements."""
    at = 0
    while at + LANES <= count:
        if adds:
            add_one(target + 4 * at, a + 4 * at, weight, a, weight, LANES)
        else:
            one(target + 4 * at, a + 4 * at, weight, a, weight, LANES)
        at += LANES
    if at < count:
        if adds:
            add_one_part(target + 4 * at, a + 4 * at, weight, a, weight, count - at)
        else:
            one_part(target + 4 * at, a + 4 * at, weight, a, weight, count - at)


@inner
def sum_two(target: int, a: int, weight: float, b: int, weight_b: float, adds: int, count: int) -> None:
    """target (+)= a * weight + b * weight_b, `count` elements."""
    at = 0
    while at + LANES <= count:
        if adds:
            add_two(target + 4 * at, a + 4 * at, weight, b + 4 * at, weight_b, LANES)
        else:
            two(target + 4 * at, a + 4 * at, weight, b + 4 * at, weight_b, LANES)
        at += LANES
    if at < count:
        if adds:
            add_two_part(target + 4 * at, a + 4 * at, weight, b + 4 * at, weight_b, count - at)
        else:
            two_part(target + 4 * at, a + 4 * at, weight, b + 4 * at, weight_b, count - at)


@inner
def sum_taps(target: int, source: int, pitch: int, taps: int, weights: int, count: int) -> None:
    """Computes the weighted sum of lines, `pitch` bytes apart, that an element's taps name; `count` elements each."""
    line, left, weight = source + pitch * load_i64(taps), load_i64(taps + 8), weights + 4 * load_i64(taps + 16)
    at = 0
    while left == 0 and at < count:
        clear_vector(target + 4 * at, count - at)
        at += LANES
    adds = 0
    while left >= 2:
        sum_two(target, line, load_f32(weight), line + pitch, load_f32(weight + 4), adds, count)
        line, weight, left, adds = line + 2 * pitch, weight + 8, left - 2, 1
    if left == 1:
        sum_one(target, line, load_f32(weight), adds, count)


@codelet
def interpolate(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Computes units lo <= unit < hi of an Interpolation."""
    height, width = word(parameters, Interpolation.HEIGHT), word(parameters, Interpolation.WIDTH)
    channels, unit_rows = word(parameters, Interpolation.CHANNELS), word(parameters, Interpolation.UNIT_ROWS)
    row_taps, row_weights = word(parameters, Interpolation.ROW_TAPS), word(parameters, Interpolation.ROW_WEIGHTS)
    column_taps, column_weights = (
        word(parameters, Interpolation.COLUMN_TAPS),
        word(parameters, Interpolation.COLUMN_WEIGHTS),
    )
    line = channels * word(parameters, Interpolation.SOURCE_WIDTH)
    image = 4 * line * word(parameters, Interpolation.SOURCE_HEIGHT)
    last, summed = word(parameters, Interpolation.IMAGES) * height, scratch + RESERVED_SCRATCH
    for row in range(lo * unit_rows, min(hi * unit_rows, last)):
        source = word(parameters, Interpolation.SOURCE) + row // height * image
        target = word(parameters, Interpolation.TARGET) + 4 * row * width * channels
        taps = row_taps + 8 * TAP_WORDS * (row % height)
        sum_taps(summed, source, 4 * line, taps, row_weights, line)
        for column in range(width):
            at = column_taps + 8 * TAP_WORDS * column
            sum_taps(target, summed, 4 * channels, at, column_weights, channels)
            target += 4 * channels


def interpolation_scratch_bytes(width: int, channels: int) -> int:
    """The bytes of scratch for images of that width."""
    return RESERVED_SCRATCH + 4 * width * channels


def encoded_interpolation(work: InterpolationWork) -> Encoded:
    """The fields of `Interpolation`."""
    _, source_height, source_width, channels = work.source.shape.dimensions
    images, height, width, _ = work.target.shape.dimensions
    parameters = Interpolation(
        source=work.source.address,
        target=work.target.address,
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
        unit_rows=work.unit_rows,
    )
    return Encoded.of(interpolate, block(parameters), interpolation_scratch_bytes(source_width, channels))
