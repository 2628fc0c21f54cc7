"""Transposes matrices of 4-byte elements in square blocks that fit the registers: each cache line is accessed once.

Element (row, column) of a matrix is at source + row * SOURCE_PITCH + 4 column and goes to
target + column * TARGET_PITCH + 4 row. There may be many matrices: the parameters end with a Dimension for each
dimension that counts them. Unit: TRANSPOSED_COLUMNS columns of one matrix.
"""

from __future__ import annotations

from engine.codelets.language.build import codelet, inner
from engine.codelets.language.encoded import Encoded
from engine.codelets.language.memory import load_i32, store_i32
from engine.codelets.language.record import Address, Record, block
from engine.codelets.language.register_transpose import LANES, lanes_transposed
from engine.codelets.products.pack import fill_progression
from engine.codelets.rows.index_walk import offsets_at, run_dimensions
from engine.machine_code.abi import RESERVED_SCRATCH
from engine.program.work.copy import TRANSPOSED_COLUMNS, TransposeWork

SCRATCH_BYTES = 8 * LANES
transpose_lanes = lanes_transposed("f32")


class Transpose(Record):
    """Parameters of `transpose`; strides and pitches in bytes."""

    source: Address = 0
    target: Address = 0
    rows: int
    columns: int
    source_pitch: int
    target_pitch: int
    rank: int  # of the table that counts the matrices


@inner
def _transpose_columns(given: Transpose, source: int, target: int, first: int, last: int, offsets: int) -> None:
    """Transposes the columns first <= column < last of one matrix."""
    whole = given.rows // LANES * LANES
    for row in range(0, whole, LANES):
        for column in range(first, last, LANES):
            transpose_lanes(
                source + row * given.source_pitch + 4 * column,
                offsets,
                LANES,
                min(LANES, last - column),
                target + column * given.target_pitch + 4 * row,
                given.target_pitch,
            )
    for column in range(first, last):
        for row in range(whole, given.rows):
            value = load_i32(source + row * given.source_pitch + 4 * column)
            store_i32(target + column * given.target_pitch + 4 * row, value)


@codelet
def transpose(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """target[column, row] = source[row, column] in the units lo <= unit < hi."""
    given, matrices = Transpose.read(parameters), parameters + 8 * Transpose.WORDS
    runs, offsets = (given.columns + TRANSPOSED_COLUMNS - 1) // TRANSPOSED_COLUMNS, scratch + RESERVED_SCRATCH
    fill_progression(offsets, LANES, given.source_pitch)
    for unit in range(lo, hi):
        first = unit % runs * TRANSPOSED_COLUMNS
        here, there, _, _ = offsets_at(matrices, given.rank, unit // runs)
        last = min(first + TRANSPOSED_COLUMNS, given.columns)
        _transpose_columns(given, given.source + here, given.target + there, first, last, offsets)


def encoded_transpose(work: TransposeWork) -> Encoded:
    """The header, then the dimensions that count the matrices."""
    header = Transpose.of(work, rank=len(work.matrices))
    return Encoded.of(transpose, block(header, run_dimensions(work.matrices)), SCRATCH_BYTES)
