"""Transposes matrices of 4-byte elements in square blocks that fit the registers: each cache line is accessed once.

Element (row, column) of a matrix is at source + row * SOURCE_PITCH + 4 column and goes to
target + column * TARGET_PITCH + 4 row. There may be many matrices: the parameters end with a MatrixDimension for each
dimension that counts them. Unit: COLUMNS columns of one matrix.
"""

from __future__ import annotations

from engine.codelets.host.rows import word
from engine.codelets.language.build import codelet, inner
from engine.codelets.language.encoded import Encoded
from engine.codelets.language.memory import load_i32, store_i32
from engine.codelets.language.record import Address, Record, block
from engine.codelets.language.register_transpose import LANES, lanes_transposed
from engine.codelets.products.pack import fill_progression
from engine.machine_code.abi import RESERVED_SCRATCH
from engine.program.work.copy import TRANSPOSED_COLUMNS, TransposeWork

COLUMNS = 64  # of a unit: 256 bytes of each row, whole cache lines
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


class MatrixDimension(Record):
    """A dimension that counts the matrices."""

    size: int
    source_stride: int
    target_stride: int


@inner
def _transpose_columns(parameters: int, source: int, target: int, first: int, last: int, offsets: int) -> None:
    """Transposes the columns first <= column < last of one matrix."""
    rows = word(parameters, Transpose.ROWS)
    source_pitch, target_pitch = word(parameters, Transpose.SOURCE_PITCH), word(parameters, Transpose.TARGET_PITCH)
    whole = rows // LANES * LANES
    for row in range(0, whole, LANES):
        for column in range(first, last, LANES):
            transpose_lanes(
                source + row * source_pitch + 4 * column,
                offsets,
                LANES,
                min(LANES, last - column),
                target + column * target_pitch + 4 * row,
                target_pitch,
            )
    for column in range(first, last):
        for row in range(whole, rows):
            value = load_i32(source + row * source_pitch + 4 * column)
            store_i32(target + column * target_pitch + 4 * row, value)


@codelet
def transpose(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """target[column, row] = source[row, column] in the units lo <= unit < hi."""
    columns, rank = word(parameters, Transpose.COLUMNS), word(parameters, Transpose.RANK)
    runs = (columns + COLUMNS - 1) // COLUMNS
    table = parameters + 8 * Transpose.WORDS
    offsets = scratch + RESERVED_SCRATCH
    fill_progression(offsets, LANES, word(parameters, Transpose.SOURCE_PITCH))
    for unit in range(lo, hi):
        rest, first = unit // runs, unit % runs * COLUMNS
        source, target = word(parameters, Transpose.SOURCE), word(parameters, Transpose.TARGET)
        for dimension in range(rank - 1, -1, -1):
            entry = table + 8 * MatrixDimension.WORDS * dimension
            size = word(entry, MatrixDimension.SIZE)
            source += rest % size * word(entry, MatrixDimension.SOURCE_STRIDE)
            target += rest % size * word(entry, MatrixDimension.TARGET_STRIDE)
            rest //= size
        _transpose_columns(parameters, source, target, first, min(first + COLUMNS, columns), offsets)


assert COLUMNS == TRANSPOSED_COLUMNS


def encoded_transpose(work: TransposeWork) -> Encoded:
    """The header, then the dimensions that count the matrices."""
    header = Transpose(
        source=work.source,
        target=work.target,
        rows=work.rows,
        columns=work.columns,
        source_pitch=work.source_pitch,
        target_pitch=work.target_pitch,
        rank=len(work.matrices),
    )
    return Encoded.of(transpose, block(header, MatrixDimension.of_each(work.matrices)), SCRATCH_BYTES)
