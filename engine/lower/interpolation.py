"""Lowers interpolations of images: units of the result's rows."""

from __future__ import annotations

import numpy as np

from engine.codelets.interpolation import TAP_WORDS, Interpolation, interpolate, interpolation_scratch_bytes
from engine.ir import Instruction
from engine.ir.interpolation import interpolation_matrices
from engine.lower.context import Context, Value
from engine.machine_code.costs import MOST_UNITS
from engine.program.program import Address, Partition, Span, WorkEstimate
from engine.program.work.codelet_work import CodeletWork

SMALL = 1 << 13
"""Elements of a result that one worker computes."""


def lower_interpolation(context: Context, instruction: Instruction) -> Value:
    """Computes images by sums of source rows, and then by sums along columns."""
    source, target = context.buffer(instruction.operands[0]), context.result_buffer(instruction)
    _, source_height, source_width, channels = instruction.operands[0].array_shape.dimensions
    images, height, width, _ = instruction.array_shape.dimensions
    by_side = [taps_of(each) for each in interpolation_matrices(instruction)]
    (row_taps, row_weights), (column_taps, column_weights) = by_side
    rows = images * height
    unit_rows = -(-rows // MOST_UNITS)
    parameters = Interpolation(
        source=Address(source),
        target=Address(target),
        row_taps=row_taps,
        row_weights=row_weights,
        column_taps=column_taps,
        column_weights=column_weights,
        images=images,
        height=height,
        width=width,
        source_height=source_height,
        source_width=source_width,
        channels=channels,
        unit_rows=unit_rows,
    )
    work = CodeletWork(interpolate, parameters, scratch=interpolation_scratch_bytes(source_width, channels))
    terms = (
        channels * images * (height * source_width * taps_a_row(row_taps) + height * width * taps_a_row(column_taps))
    )
    estimate = WorkEstimate({"multiply": int(terms), "add": int(terms)}, 0, "f32")
    written = Span(target, Partition(width * channels, rows, unit_rows))
    small = instruction.array_shape.elements <= SMALL
    context.emit_for(instruction, work, -(-rows // unit_rows), [source], [written], estimate, one_worker=small)
    return target


def taps_of(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First element, count and first weight of the nonzero span of each row: int64 [rows, TAP_WORDS]; all weights,
    float32.

    A span runs from the first to the last element that is not zero.
    """
    taps, weights = np.zeros((len(matrix), TAP_WORDS), np.int64), []
    begin = 0
    for number, row in enumerate(matrix):
        (found,) = np.nonzero(row)
        if len(found):
            first, count = found[0], found[-1] - found[0] + 1
            taps[number] = first, count, begin
            weights.append(row[first : first + count])
            begin += count
    return taps, np.concatenate(weights or [np.zeros(1)]).astype(np.float32)


def taps_a_row(taps: np.ndarray) -> float:
    """The mean number of taps."""
    return float(taps[:, 1].mean())
