"""Convolutions of float32 with few output features: neighbouring columns of outputs fill the lanes.

The input rows that some rows of outputs read are transposed to scratch first, [slice, row, feature, column], with zeros
around the image.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from engine.codelets.convolutions.window_filling import DEPTHWISE, spreading
from engine.codelets.language import vector
from engine.codelets.language.build import Codelet, inner
from engine.codelets.language.intrinsic import intrinsic
from engine.codelets.language.loops import EmittedLoop
from engine.codelets.language.memory import F32, I64, POINTER, load_i32, load_i64, store_i32
from engine.codelets.language.record import Address, Record, Table, word
from engine.codelets.language.register_transpose import lanes_transposed
from engine.codelets.language.switched import switched
from engine.machine_code.abi import RESERVED_SCRATCH
from engine.machine_code.llvm import ir
from engine.machine_code.processor import lanes, registers

LANES = lanes()
VECTOR = 4 * LANES
MOST_FEATURES = 4
RUNS = (7, 5, 3, 2)
"""Rows of runs of taps that have kernels; other taps are runs of one."""
MOST_FACTORS = 9 if registers() == 32 else 4
"""Elements of the kernel in registers: taps of a run by output features."""
MOST_ROWS = 8
"""Rows of outputs whose sums are in registers at a time."""
_SUMS = {1: 16, 2: 16, 3: 18, 4: 24} if registers() == 32 else {1: 6, 2: 8, 3: 6, 4: 8}
_VECTORS = {1: 4, 2: 2, 3: 2, 4: 2} if registers() == 32 else {1: 3, 2: 2, 3: 1, 4: 1}


class RowRun(NamedTuple):
    """Taps in neighbouring rows of the same column and input feature, and output features."""

    rows: int
    features: int


def most_sums(features: int) -> int:
    """Vectors of sums of a feature that are in registers at a time."""
    return _SUMS[features] // features


def most_vectors(features: int) -> int:
    """Vectors of columns whose sums are in registers at a time."""
    return _VECTORS[features]


def most_rows(features: int, vectors: int) -> int:
    """Most rows of a kernel whose rows have `vectors` vectors each."""
    return min(MOST_ROWS, most_sums(features) // vectors)


def whole_vectors(elements: int) -> int:
    """Elements rounded up to whole vectors."""
    return -(-elements // LANES) * LANES


@cache
def summing(run: RowRun) -> Any:
    """`sum_taps(case, a, row_a, offset_a, b, offset_b, tap_b, feature_b, sums, runs)`.

    S[y, o, x] = sum over runs r and their taps t of A[(y + t) * row_a + offset_a[r] + 4x] * B[offset_b[r] + t * tap_b +
    o * feature_b], in bytes. Case rows * MOST_ROWS + vectors; `sums` has the vectors of columns x for each y and o.
    """

    def write(builder: ir.IRBuilder, case: int, arguments: tuple[ir.Value, ...]) -> None:
        rows, vectors = divmod(case, MOST_ROWS)
        a, row_a, offset_a, b, offset_b, tap_b, feature_b, sums, runs = arguments
        start = [vector.zeros()] * (rows * run.features * vectors)
        loop = EmittedLoop(builder, "runs", I64(0), builder.shl(runs, I64(3)), I64(8), start)
        source, weight = (
            builder.add(base, _load(builder, builder.add(table, loop.at), I64))
            for base, table in ((a, offset_a), (b, offset_b))
        )
        factors = _factors(builder, run, weight, tap_b, feature_b)
        totals = _summed(builder, (rows, vectors), (source, row_a), factors, loop.carried)
        loop.close(totals)
        for number, total in enumerate(totals):
            vector.store_vector(builder, total, builder.add(sums, I64(VECTOR * number)))

    widths = range(1, most_vectors(run.features) + 1)
    cases = [MOST_ROWS * rows + width for width in widths for rows in range(1, most_rows(run.features, width) + 1)]
    return switched("sum", cases, write)


def _load(builder: ir.IRBuilder, address: ir.Value, kind: ir.Type) -> ir.Value:
    return builder.load(builder.inttoptr(address, POINTER), align=4 if kind is F32 else 8, typ=kind)


def _factors(
    builder: ir.IRBuilder, run: RowRun, weight: ir.Value, tap_b: ir.Value, feature_b: ir.Value
) -> list[list[ir.Value]]:
    """Loads the kernel for a run: for each tap the elements of all features, each in all lanes."""
    made = []
    for _ in range(run.rows):
        at, row = weight, []
        for _ in range(run.features):
            row.append(vector.splat(builder, _load(builder, at, F32)))
            at = builder.add(at, feature_b)
        made.append(row)
        weight = builder.add(weight, tap_b)
    return made


def _summed(
    builder: ir.IRBuilder,
    size: tuple[int, int],
    source: tuple[ir.Value, ir.Value],
    factors: list[list[ir.Value]],
    sums: list[ir.Value],
) -> list[ir.Value]:
    """Adds a run's products to sums [row][feature][vector]; `source` is the address of the first row, and the pitch."""
    sums, (address, pitch), (rows, vectors) = list(sums), source, size
    features = len(factors[0])
    for read in range(rows + len(factors) - 1):
        values = [vector.load_vector(builder, builder.add(address, I64(VECTOR * v))) for v in range(vectors)]
        for row in range(max(0, read - len(factors) + 1), min(rows, read + 1)):
            for feature, factor in enumerate(factors[read - row]):
                for v, value in enumerate(values):
                    at = (row * features + feature) * vectors + v
                    sums[at] = vector.multiply_add(builder, value, factor, sums[at])
        address = builder.add(address, pitch)
    return sums


@intrinsic
def store_lanes(builder: ir.IRBuilder, source: ir.Value, target: ir.Value, count: ir.Value) -> None:
    """Copies a vector of sums in scratch to `count` elements of a result."""
    value, mask = vector.load_vector(builder, source), vector.lane_mask(builder, count)
    # Masked stores are slow on some processors.
    with builder.if_else(builder.icmp_signed("==", count, I64(LANES))) as (whole, rest):
        with whole:
            vector.store_vector(builder, value, target)
        with rest:
            vector.store_vector(builder, value, target, mask)


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
        tap_b = word(parameters, Few.TAP_B)
        feature_b = word(parameters, Few.FEATURE_B)
        runs = word(parameters, Few.RUNS)
        case = MOST_ROWS * rows + vectors
        sum_taps(case, window, row_a, offset_a, word(parameters, Few.B), offset_b, tap_b, feature_b, sums, runs)

    @inner
    def store_rows(parameters: int, rows: int, vectors: int, columns: int, c: int, sums: int) -> None:
        row_c = word(parameters, Few.ROW_C)
        column_c = word(parameters, Few.COLUMN_C)
        feature_c = word(parameters, Few.FEATURE_C)
        for row in range(rows):
            for feature in range(features):
                store_columns(sums, c + row * row_c + feature * feature_c, column_c, columns)
                sums += vectors * VECTOR

    def convolve(parameters: int, lo: int, hi: int, scratch: int) -> None:
        rows = word(parameters, Few.ROWS)
        block_rows = word(parameters, Few.BLOCK_ROWS)
        columns = word(parameters, Few.COLUMNS)
        slices, step_rows = word(parameters, Few.SLICES), word(parameters, Few.STEP_ROWS)
        row_a = step_rows * word(parameters, Few.INPUTS) * word(parameters, Few.PLANE)
        blocks = (rows + block_rows - 1) // block_rows
        window = scratch + RESERVED_SCRATCH
        sums = scratch + word(parameters, Few.SUMS)
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
