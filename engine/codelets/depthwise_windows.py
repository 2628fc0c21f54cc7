"""Depthwise convolutions of float32, and their gradients by the kernel: windows of images are copied to scratch first.

There, in the nearest cache, a vector of channels has all that some rows of outputs read, with zeros around the image.
"""

from __future__ import annotations

from functools import cache

from engine.codelets.build import Codelet, inner
from engine.codelets.record import Address, Record, Table
from engine.codelets.rows import word
from engine.codelets.window_kernels import PAIRED, convolving, correlating, fill_row
from engine.codelets.window_sizes import LANES, VECTOR, Run, most_columns, most_runs
from engine.machine_code.abi import RESERVED_SCRATCH

AHEAD = 2
"""Vectors of channels from those that are read to those that are prefetched."""


class Windows(Record):
    """Images A and C, or gradients of outputs, with contiguous channels; strides are bytes."""

    a: Address
    c: Address
    channels: int
    images: int
    rows: int  # of an image's outputs
    columns: int
    image_a: int
    row_a: int
    column_a: int
    image_c: int
    row_c: int
    column_c: int
    rows_a: int  # of an image: what taps read outside of it is zero
    columns_a: int
    first_row: int  # that the first output reads, and its first column
    first_column: int
    step_rows: int  # between outputs
    reach_rows: int  # that the taps of an output span
    width: int  # columns of a window
    block_rows: int  # of outputs of a window
    runs: int  # of taps in neighbouring columns
    offset_a: Table  # [runs], in a window


class Forward(Windows):
    """Parameters of `depthwise_forward`; the order of the taps is that of the sums."""

    b: Address
    offset_b: Table  # [runs, columns of a run]
    unit_rows: int


class Backward(Windows):
    """Parameters of `depthwise_gradient`; C has the gradients of outputs."""

    sums: Address
    row_sums: Table  # the same
    parts: int
    part_bytes: int
    unit_channels: int


@inner
def ahead_of(parameters: int, g: int, row: int, rows: int) -> int:
    """Bytes from channel `g` to what is read some vectors later: after the last channels, `rows` rows on."""
    channels = word(parameters, Windows.CHANNELS)
    later = g + AHEAD * LANES
    return 4 * AHEAD * LANES if later < channels else rows * row + 4 * (later - channels) // VECTOR * VECTOR - 4 * g


@inner
def fill_window(parameters: int, image: int, row: int, rows: int, ahead: int, lanes: int, window: int) -> None:
    """Copies one vector of channels of `rows` rows of an image, from `row` on, with zeros outside of it."""
    width, column = word(parameters, Windows.WIDTH), word(parameters, Windows.FIRST_COLUMN)
    columns, pitch = word(parameters, Windows.COLUMNS_A), word(parameters, Windows.COLUMN_A)
    before = min(max(-column, 0), width)
    begin = max(column, 0)
    inside = max(min(columns - begin, width - before), 0)
    for i in range(row, row + rows):
        exists = 0 <= i and i < word(parameters, Windows.ROWS_A)
        source = image + i * word(parameters, Windows.ROW_A) + begin * pitch
        if exists:
            fill_row(source, pitch, ahead, before, inside, width - before - inside, window, lanes)
        else:
            fill_row(source, pitch, 0, width, 0, 0, window, lanes)
        window += width * VECTOR


def _name(run: Run) -> str:
    return f"{run.step}_{run.columns}" + "_backward" * run.backward


@cache
def depthwise_forward(run: Run) -> Codelet:
    """The codelet for such runs of taps. Unit: rows of outputs, counted through all images."""
    convolve, most = convolving(run), most_columns(run)

    @inner
    def convolve_rows(parameters: int, rows: int, window: int, b: int, c: int, lanes: int) -> None:
        columns, runs = word(parameters, Windows.COLUMNS), word(parameters, Windows.RUNS)
        offset_a, offset_b = word(parameters, Windows.OFFSET_A), word(parameters, Forward.OFFSET_B)
        blocks = (columns + most - 1) // most
        pitch, row_c = word(parameters, Windows.COLUMN_C), word(parameters, Windows.ROW_C)
        row_a = word(parameters, Windows.STEP_ROWS) * word(parameters, Windows.WIDTH) * VECTOR
        row = 0
        while row < rows:
            paired = row + PAIRED <= rows
            done = 0
            for block in range(blocks):
                # Blocks of about equal width: narrow ones wait for sums.
                count = (columns - done) // (blocks - block)
                source = window + done * run.step * VECTOR
                outputs = most + count if paired else count
                target = c + done * pitch
                convolve(outputs, source, row_a, offset_a, b, offset_b, target, row_c, pitch, runs, lanes)
                done += count
            count = PAIRED if paired else 1
            window, c, row = window + count * row_a, c + count * row_c, row + count

    def forward(parameters: int, lo: int, hi: int, scratch: int) -> None:
        rows, unit = word(parameters, Windows.ROWS), word(parameters, Forward.UNIT_ROWS)
        row, end = lo * unit, min(hi * unit, word(parameters, Windows.IMAGES) * rows)
        step_rows, reach = word(parameters, Windows.STEP_ROWS), word(parameters, Windows.REACH_ROWS)
        channels, window = word(parameters, Windows.CHANNELS), scratch + RESERVED_SCRATCH
        while row < end:
            image, first = row // rows, row % rows
            count = min(min(end - row, rows - first), word(parameters, Windows.BLOCK_ROWS))
            a = word(parameters, Windows.A) + image * word(parameters, Windows.IMAGE_A)
            c = word(parameters, Windows.C) + image * word(parameters, Windows.IMAGE_C)
            c += first * word(parameters, Windows.ROW_C)
            begin = word(parameters, Windows.FIRST_ROW) + first * step_rows
            for g in range(0, channels, LANES):
                lanes = min(LANES, channels - g)
                read = (count - 1) * step_rows + reach
                ahead = ahead_of(parameters, g, word(parameters, Windows.ROW_A), count * step_rows)
                fill_window(parameters, a + 4 * g, begin, read, ahead, lanes, window)
                convolve_rows(parameters, count, window, word(parameters, Forward.B) + 4 * g, c + 4 * g, lanes)
            row += count

    return Codelet(forward, "depthwise_forward_" + _name(run), in_vectors=True)


@cache
def depthwise_gradient(run: Run) -> Codelet:
    """The codelet for such runs of taps. Unit: some channels of a part of all rows, with own sums."""
    correlate, most = correlating(run), most_runs(run)

    @inner
    def correlate_rows(
        parameters: int, rows: int, window: int, g: int, ahead: int, sums: int, adds: int, lanes: int
    ) -> None:
        columns, runs = word(parameters, Windows.COLUMNS), word(parameters, Windows.RUNS)
        row_g, pitch_g = word(parameters, Windows.ROW_C), word(parameters, Windows.COLUMN_C)
        row_a = word(parameters, Windows.STEP_ROWS) * word(parameters, Windows.WIDTH) * VECTOR
        for first in range(0, runs, most):
            offset_a = word(parameters, Windows.OFFSET_A) + 8 * first
            row_sums = word(parameters, Backward.ROW_SUMS) + 8 * first * run.columns
            count = min(most, runs - first)
            to = sums, row_sums, adds
            correlate(count, window, offset_a, row_a, g, row_g, pitch_g, ahead, rows, columns, *to, lanes)

    def gradient(parameters: int, lo: int, hi: int, scratch: int) -> None:
        rows, parts = word(parameters, Windows.ROWS), word(parameters, Backward.PARTS)
        total = word(parameters, Windows.IMAGES) * rows
        step_rows, reach = word(parameters, Windows.STEP_ROWS), word(parameters, Windows.REACH_ROWS)
        channels, window = word(parameters, Windows.CHANNELS), scratch + RESERVED_SCRATCH
        unit_channels = word(parameters, Backward.UNIT_CHANNELS)
        blocks = (channels + unit_channels - 1) // unit_channels
        for unit in range(lo, hi):
            part, channel = unit // blocks, unit % blocks * unit_channels
            begin, end = part * total // parts, (part + 1) * total // parts
            sums, row = word(parameters, Backward.SUMS) + part * word(parameters, Backward.PART_BYTES), begin
            while row < end:
                image, first = row // rows, row % rows
                count = min(min(end - row, rows - first), word(parameters, Windows.BLOCK_ROWS))
                a = word(parameters, Windows.A) + image * word(parameters, Windows.IMAGE_A)
                of_outputs = word(parameters, Windows.C) + image * word(parameters, Windows.IMAGE_C)
                of_outputs += first * word(parameters, Windows.ROW_C)
                first_read, adds = word(parameters, Windows.FIRST_ROW) + first * step_rows, 1 if row > begin else 0
                for g in range(channel, min(channel + unit_channels, channels), LANES):
                    lanes = min(LANES, channels - g)
                    read = (count - 1) * step_rows + reach
                    ahead = ahead_of(parameters, g, word(parameters, Windows.ROW_A), count * step_rows)
                    fill_window(parameters, a + 4 * g, first_read, read, ahead, lanes, window)
                    ahead = ahead_of(parameters, g, word(parameters, Windows.ROW_C), count)
                    correlate_rows(parameters, count, window, of_outputs + 4 * g, ahead, sums + 4 * g, adds, lanes)
                row += count

    return Codelet(gradient, "depthwise_gradient_" + _name(run), in_vectors=True)
