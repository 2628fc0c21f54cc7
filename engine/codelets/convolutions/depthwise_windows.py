"""Depthwise and grouped convolutions of float32, and their gradients by the kernel: windows of images are copied first.

A window in scratch, a near cache, has all that some rows of outputs read of a vector of channels, with zeros around the
image.
"""

from __future__ import annotations

from functools import cache

from engine.codelets.convolutions.window_filling import Windows, ahead_of, copying, filling
from engine.codelets.convolutions.window_kernels import PAIRED, convolving, correlating
from engine.codelets.convolutions.window_sizes import (
    DEPTHWISE,
    LANES,
    VECTOR,
    ColumnRun,
    FeatureGroup,
    most_columns,
    most_runs,
)
from engine.codelets.host.rows import word
from engine.codelets.language.build import Codelet, inner
from engine.codelets.language.record import Address, Table
from engine.machine_code.abi import RESERVED_SCRATCH


class Forward(Windows):
    """Parameters of `depthwise_forward`; sums are in the order of the taps."""

    b: Address
    offset_b: Table  # [runs, columns of a run]
    unit_rows: int


class Backward(Windows):
    """Parameters of `depthwise_gradient`; C has the gradients of outputs."""

    sums: Address
    row_sums: Table  # [runs, columns of a run]
    parts: int
    part_bytes: int
    unit_channels: int
    copied: int  # where gradients of outputs are copied, after the window, where it has several planes


def _name(run: ColumnRun, group: FeatureGroup) -> str:
    grouped = "" if group == DEPTHWISE else f"_of_{group.inputs}_to_{group.outputs}"
    return f"{run.step}_{run.columns}" + "_backward" * run.backward + grouped


@cache
def depthwise_forward(run: ColumnRun, group: FeatureGroup = DEPTHWISE) -> Codelet:
    """Makes the forward codelet for these runs of taps and this group. Unit: rows of outputs, through all images."""
    convolve, most, fill_window = convolving(run), most_columns(run), filling(group)
    inputs, outputs = group
    step = group.before(LANES)

    @inner
    def convolve_rows(parameters: int, rows: int, window: int, b: int, c: int, lanes: int) -> None:
        columns, runs = word(parameters, Windows.COLUMNS), word(parameters, Windows.RUNS)
        offset_a, offset_b = word(parameters, Windows.OFFSET_A), word(parameters, Forward.OFFSET_B)
        blocks = (columns + most - 1) // most
        pitch, row_c = word(parameters, Windows.COLUMN_C), word(parameters, Windows.ROW_C)
        row_a = word(parameters, Windows.STEP_ROWS) * word(parameters, Windows.ROW_BYTES)
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
                at = g // outputs * inputs
                row_a = word(parameters, Windows.ROW_A)
                ahead = ahead_of(channels // outputs * inputs, at, step, row_a, count * step_rows)
                fill_window(parameters, a + 4 * at, begin, read, ahead, lanes, window)
                convolve_rows(parameters, count, window, word(parameters, Forward.B) + 4 * g, c + 4 * g, lanes)
            row += count

    return Codelet(forward, "depthwise_forward_" + _name(run, group), in_vectors=True)


@cache
def depthwise_gradient(run: ColumnRun, group: FeatureGroup = DEPTHWISE) -> Codelet:
    """Makes the gradient's codelet for these runs of taps and this group. Unit: some channels of a part of all rows."""
    correlate, most, fill_window, copy_columns = correlating(run), most_runs(run), filling(group), copying()
    inputs, outputs = group
    step = group.before(LANES)

    @inner
    def correlate_rows(
        parameters: int, rows: int, window: int, g: int, ahead: int, sums: int, adds: int, lanes: int
    ) -> None:
        columns, runs = word(parameters, Windows.COLUMNS), word(parameters, Windows.RUNS)
        row_g, pitch_g = word(parameters, Windows.ROW_C), word(parameters, Windows.COLUMN_C)
        row_a = word(parameters, Windows.STEP_ROWS) * word(parameters, Windows.ROW_BYTES)
        if inputs > 1:  # all planes read them, and distant lines share sets of the cache
            copied = window + word(parameters, Backward.COPIED)
            copy_columns(g, row_g, pitch_g, ahead, copied, rows, columns, lanes)
            g, row_g, pitch_g, ahead = copied, columns * VECTOR, VECTOR, 0
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
                    at = g // outputs * inputs
                    row_a = word(parameters, Windows.ROW_A)
                    ahead = ahead_of(channels // outputs * inputs, at, step, row_a, count * step_rows)
                    fill_window(parameters, a + 4 * at, first_read, read, ahead, lanes, window)
                    ahead = ahead_of(channels, g, LANES, word(parameters, Windows.ROW_C), count)
                    correlate_rows(parameters, count, window, of_outputs + 4 * g, ahead, sums + 4 * g, adds, lanes)
                row += count

    return Codelet(gradient, "depthwise_gradient_" + _name(run, group), in_vectors=True)
