"""Depthwise and grouped convolutions of float32, and their gradients by the kernel: windows of images are copied first.

A window in scratch, a near cache, has all that some rows of outputs read of a vector of channels, with zeros around the
image.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from engine.codelets.convolutions.window_filling import (
    DEPTHWISE,
    LANES,
    VECTOR,
    ColumnRun,
    FeatureGroup,
    Windows,
    ahead_of,
    copying,
    filling,
    most_columns,
    most_runs,
)
from engine.codelets.language import vector
from engine.codelets.language.build import Codelet, inner
from engine.codelets.language.loops import EmittedLoop
from engine.codelets.language.memory import I64, loaded_i64, places, prefetch_at
from engine.codelets.language.record import Address, Table, word
from engine.codelets.language.switched import switched
from engine.machine_code.abi import RESERVED_SCRATCH
from engine.machine_code.llvm import ir

PAIRED = 2
"""Rows of outputs whose sums are in registers together."""


def _loaded(builder: ir.IRBuilder, address: ir.Value, number: int) -> ir.Value:
    """Vector `number` after an address in a window."""
    return vector.load_vector(builder, builder.add(address, I64(VECTOR * number)))


@cache
def convolving(run: ColumnRun) -> Any:
    """`convolve(outputs, a, row_a, offset_a, b, offset_b, c, row_c, pitch_c, runs, lanes)`.

    C[y * row_c + x * pitch_c] = sum over taps of A[y * row_a + x * step * VECTOR + the tap's offset] * B[the tap's
    offset]. Run r begins at offset_a[r]; offset_b has all taps in the order of the sums. `outputs` is the number of x,
    plus `most_columns` for PAIRED rows.
    """
    most = most_columns(run)

    def write(builder: ir.IRBuilder, outputs: int, arguments: tuple[ir.Value, ...]) -> None:
        a, row_a, offset_a, b, offset_b, c, row_c, pitch_c, runs, lanes = arguments
        rows, columns = (1, outputs) if outputs <= most else (PAIRED, outputs - most)
        mask = vector.lane_mask(builder, lanes)
        start = [vector.zeros()] * (rows * columns)
        loop = EmittedLoop(builder, "runs", I64(0), builder.shl(runs, I64(3)), I64(8), start)
        source = builder.add(a, loaded_i64(builder, builder.add(offset_a, loop.at)))
        table = builder.add(offset_b, builder.mul(loop.at, I64(run.columns)))
        factors = []
        for tap in range(run.columns):
            address = builder.add(b, loaded_i64(builder, builder.add(table, I64(8 * tap))))
            factors.append(vector.load_vector(builder, address, mask))
        sums = list(loop.carried)
        for y in range(rows):
            part = _convolved(builder, run, source, factors, sums[y * columns : (y + 1) * columns])
            sums[y * columns : (y + 1) * columns] = part
            source = builder.add(source, row_a)
        loop.close(sums)
        targets = []
        for _ in range(rows):
            targets += [builder.add(c, builder.mul(pitch_c, I64(x))) for x in range(columns)]
            c = builder.add(c, row_c)
        _store(builder, sums, targets, lanes, mask)

    return switched("convolve", range(1, PAIRED * most + 1), write)


def _convolved(
    builder: ir.IRBuilder, run: ColumnRun, source: ir.Value, factors: list[ir.Value], sums: list[ir.Value]
) -> list[ir.Value]:
    """The sums of a row of outputs with the products of a run, in the order of its taps."""
    sums = list(sums)
    reach = (len(sums) - 1) * run.step + run.columns
    for at in reversed(range(reach)) if run.backward else range(reach):
        value = None
        for x in range(len(sums)):
            column = at - x * run.step
            if 0 <= column < run.columns:
                value = _loaded(builder, source, at) if value is None else value
                tap = run.columns - 1 - column if run.backward else column
                sums[x] = vector.multiply_add(builder, value, factors[tap], sums[x])
    return sums


def _store(
    builder: ir.IRBuilder, values: list[ir.Value], targets: list[ir.Value], lanes: ir.Value, mask: ir.Value
) -> None:
    """Stores vectors; masked stores are slow on some processors."""
    with builder.if_else(builder.icmp_signed("==", lanes, I64(VECTOR // 4))) as (whole, rest):
        for branch, chosen in ((whole, None), (rest, mask)):
            with branch:
                for value, target in zip(values, targets, strict=True):
                    vector.store_vector(builder, value, target, chosen)


@cache
def correlating(run: ColumnRun) -> Any:
    """`correlate(runs, a, offset_a, row_a, g, row_g, pitch_g, ahead, rows, columns, c, row_c, adds, lanes)`.

    C[row_c[tap]] (+)= sum over rows y and columns x of A[y * row_a + x * step * VECTOR + the tap's offset] * G[y *
    row_g + x * pitch_g]. Memory `ahead` bytes after G is prefetched.
    """

    def write(builder: ir.IRBuilder, runs: int, arguments: tuple[ir.Value, ...]) -> None:
        a, offset_a, row_a, g, row_g, pitch_g, ahead, rows, columns, c, row_c, adds, lanes = arguments
        mask = vector.lane_mask(builder, lanes)
        begins = [loaded_i64(builder, builder.add(offset_a, I64(8 * each))) for each in range(runs)]
        kept = max(0, run.columns - run.step)
        outer = EmittedLoop(builder, "rows", I64(0), rows, I64(1), [a, g, *[vector.zeros()] * (runs * run.columns)])
        at_a, at_g, *sums = outer.carried
        known = [_loaded(builder, builder.add(at_a, begin), i) for begin in begins for i in range(kept)]
        inside = EmittedLoop(builder, "columns", I64(0), columns, I64(1), [at_a, at_g, *known, *sums])
        source, gradient, *held = inside.carried
        known, sums = held[: runs * kept], held[runs * kept :]
        prefetch_at(builder, builder.add(gradient, ahead))
        factor = vector.load_vector(builder, gradient, mask)
        following = []
        for number, begin in enumerate(begins):
            address = builder.add(source, begin)
            values = known[number * kept : (number + 1) * kept]
            values += [_loaded(builder, address, i) for i in range(kept, run.columns)]
            for tap, value in enumerate(values, number * run.columns):
                sums[tap] = vector.multiply_add(builder, value, factor, sums[tap])
            following += values[run.step :] if kept else []
        inside.close([builder.add(source, I64(VECTOR * run.step)), builder.add(gradient, pitch_g), *following, *sums])
        outer.close([builder.add(at_a, row_a), builder.add(at_g, row_g), *sums])
        _store_sums(builder, sums, c, row_c, adds, mask)

    return switched("correlate", range(1, most_runs(run) + 1), write)


def _store_sums(
    builder: ir.IRBuilder, sums: list[ir.Value], c: ir.Value, row_c: ir.Value, adds: ir.Value, mask: ir.Value
) -> None:
    """Stores sums at the offsets of a table, or adds them to the elements there."""
    targets = places(builder, c, row_c, len(sums))
    with builder.if_else(builder.icmp_signed("!=", adds, I64(0))) as (add, replace):
        with add:
            for target, total in zip(targets, sums, strict=True):
                total = builder.fadd(vector.load_vector(builder, target, mask), total)
                vector.store_vector(builder, total, target, mask)
        with replace:
            for target, total in zip(targets, sums, strict=True):
                vector.store_vector(builder, total, target, mask)


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
