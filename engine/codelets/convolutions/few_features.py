"""Convolutions of float32 with few output features: neighbouring columns of outputs fill the lanes.

The input rows that some rows of outputs read are transposed to scratch first, [slice, row, feature, column], with zeros
around the image.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from engine.codelets.convolutions.few_kernels import store_lanes, summing
from engine.codelets.convolutions.few_sizes import LANES, MOST_ROWS, VECTOR, RowRun, most_sums, most_vectors
from engine.codelets.convolutions.window_filling import spreading
from engine.codelets.convolutions.window_sizes import DEPTHWISE
from engine.codelets.host.rows import word
from engine.codelets.language.build import Codelet, inner
from engine.codelets.language.memory import load_i32, load_i64, store_i32
from engine.codelets.language.record import Address, Record, Table
from engine.codelets.language.register_transpose import lanes_transposed
from engine.machine_code.abi import RESERVED_SCRATCH

transpose_lanes = lanes_transposed("f32")
move = spreading(DEPTHWISE)


class Few(Record):
    """Parameters of `few_features`: images A of contiguous features, the kernel B, outputs C; strides are bytes."""

    a: Address
    b: Address
    c: Address
    inputs: int  # features
    slices: int  # of an image's outputs, its rows and columns
    rows: int
    columns: int
    image_a: int
    slice_a: int
    row_a: int
    image_c: int
    slice_c: int
    row_c: int
    column_c: int
    feature_c: int
    tap_b: int  # from tap to tap of a run
    feature_b: int
    slices_a: int  # of an image: taps read zeros outside of it
    rows_a: int
    step_slices: int  # between outputs
    step_rows: int
    window_slices: int
    slice_starts: Table  # [window_slices], those that the first output reads
    first_row: int  # that the first output reads
    reach_rows: int  # that the taps of an output span
    begin: int  # offset of the first column that is read
    before: int  # zeros before it
    inside: int  # columns of the image
    plane: int  # bytes of a row of one feature in scratch
    slice_bytes: int  # of all rows that a unit may read of a slice, in scratch
    column_offsets: Table  # [LANES], in an image
    block_rows: int  # of outputs of a unit
    runs: int
    offset_a: Table  # [runs], in scratch
    offset_b: Table  # [runs]
    sums: int  # in scratch


@inner
def fill_planes(parameters: int, source: int, target: int) -> None:
    """Transposes a row of an image: a plane for each feature, with zeros before and after the columns."""
    plane, inputs, before = word(parameters, Few.PLANE), word(parameters, Few.INPUTS), word(parameters, Few.BEFORE)
    inside, offsets = word(parameters, Few.INSIDE), word(parameters, Few.COLUMN_OFFSETS)
    first, last = (before + LANES - 1) // LANES, (plane // 4 - before - inside + LANES - 1) // LANES
    for feature in range(inputs):
        at = target + feature * plane
        if first > 0:
            move(0, 0, 0, 0, at, 0, first, LANES)
        if last > 0:
            move(0, 0, 0, 0, at + plane - last * VECTOR, 0, last, LANES)
    for column in range(0, inside, LANES):
        for feature in range(0, inputs, LANES):
            transpose_lanes(
                source + load_i64(offsets + 8) * column + 4 * feature,
                offsets,
                min(LANES, inside - column),
                min(LANES, inputs - feature),
                target + feature * plane + 4 * (before + column),
                plane,
            )


@inner
def fill_rows(parameters: int, image: int, number: int, first: int, rows: int, window: int) -> None:
    """Fills the input rows from `first` on, in all slices that slice `number` of outputs reads."""
    row_bytes = word(parameters, Few.INPUTS) * word(parameters, Few.PLANE)
    for each in range(word(parameters, Few.WINDOW_SLICES)):
        at = number * word(parameters, Few.STEP_SLICES) + load_i64(word(parameters, Few.SLICE_STARTS) + 8 * each)
        source = image + at * word(parameters, Few.SLICE_A) + word(parameters, Few.BEGIN)
        target = window + each * word(parameters, Few.SLICE_BYTES)
        for row in range(first, first + rows):
            if 0 <= at and at < word(parameters, Few.SLICES_A) and 0 <= row and row < word(parameters, Few.ROWS_A):
                fill_planes(parameters, source + row * word(parameters, Few.ROW_A), target)
            else:
                move(0, 0, 0, 0, target, 0, row_bytes // VECTOR, LANES)
            target += row_bytes


@inner
def store_columns(source: int, target: int, pitch: int, columns: int) -> None:
    """Stores neighbours in scratch `pitch` bytes apart."""
    if pitch == 4:
        for column in range(0, columns, LANES):
            store_lanes(source + 4 * column, target + 4 * column, min(LANES, columns - column))
    else:
        for column in range(columns):
            store_i32(target + column * pitch, load_i32(source + 4 * column))


@cache
def few_features(run: RowRun) -> Codelet:
    """Makes the codelet for these runs of taps. Unit: some rows of outputs of one slice of an image."""
    sum_taps: Any = summing(run)
    features, widest, most = run.features, most_vectors(run.features), most_sums(run.features)

    @inner
    def convolve_rows(parameters: int, rows: int, vectors: int, window: int, row_a: int, sums: int) -> None:
        offset_a, offset_b = word(parameters, Few.OFFSET_A), word(parameters, Few.OFFSET_B)
        tap_b, feature_b, runs = (
            word(parameters, Few.TAP_B),
            word(parameters, Few.FEATURE_B),
            word(parameters, Few.RUNS),
        )
        case = MOST_ROWS * rows + vectors
        sum_taps(case, window, row_a, offset_a, word(parameters, Few.B), offset_b, tap_b, feature_b, sums, runs)

    @inner
    def store_rows(parameters: int, rows: int, vectors: int, columns: int, c: int, sums: int) -> None:
        row_c, column_c, feature_c = (
            word(parameters, Few.ROW_C),
            word(parameters, Few.COLUMN_C),
            word(parameters, Few.FEATURE_C),
        )
        for row in range(rows):
            for feature in range(features):
                store_columns(sums, c + row * row_c + feature * feature_c, column_c, columns)
                sums += vectors * VECTOR

    def convolve(parameters: int, lo: int, hi: int, scratch: int) -> None:
        rows, block_rows, columns = (
            word(parameters, Few.ROWS),
            word(parameters, Few.BLOCK_ROWS),
            word(parameters, Few.COLUMNS),
        )
        slices, step_rows = word(parameters, Few.SLICES), word(parameters, Few.STEP_ROWS)
        row_a = step_rows * word(parameters, Few.INPUTS) * word(parameters, Few.PLANE)
        blocks, window, sums = (
            (rows + block_rows - 1) // block_rows,
            scratch + RESERVED_SCRATCH,
            scratch + word(parameters, Few.SUMS),
        )
        for unit in range(lo, hi):
            first, number, image = unit % blocks * block_rows, unit // blocks % slices, unit // blocks // slices
            count = min(block_rows, rows - first)
            a = word(parameters, Few.A) + image * word(parameters, Few.IMAGE_A)
            c = word(parameters, Few.C) + image * word(parameters, Few.IMAGE_C) + number * word(parameters, Few.SLICE_C)
            begin, read = word(parameters, Few.FIRST_ROW) + first * step_rows, (count - 1) * step_rows
            fill_rows(parameters, a, number, begin, read + word(parameters, Few.REACH_ROWS), window)
            column = 0
            while column < columns:
                vectors = min(widest, (columns - column + LANES - 1) // LANES)
                together = min(MOST_ROWS, most // vectors)
                for row in range(0, count, together):
                    some, width = min(together, count - row), min(columns - column, vectors * LANES)
                    convolve_rows(parameters, some, vectors, window + row * row_a + 4 * column, row_a, sums)
                    to = c + (first + row) * word(parameters, Few.ROW_C) + column * word(parameters, Few.COLUMN_C)
                    store_rows(parameters, some, vectors, width, to, sums)
                column += vectors * LANES

    return Codelet(convolve, f"few_features_{run.rows}_{run.features}", in_vectors=True)
