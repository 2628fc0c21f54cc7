"""Codelets and parameter blocks of fused loops, whose nests are their codelets, and of transposes."""

from __future__ import annotations

import numpy as np

from engine.codelets.language.record import block
from engine.codelets.transpose import COLUMNS, SCRATCH_BYTES, MatrixDimension, Transpose, transpose
from engine.host.encoded import Encoded, Relocation
from engine.program.work.copy import TRANSPOSED_COLUMNS, TransposeWork
from engine.program.work.fused_loop import Count, FusedLoop

assert COLUMNS == TRANSPOSED_COLUMNS


def encoded_loop(loop: FusedLoop) -> Encoded:
    """The block as `Nest` defines it."""
    words = [loop.grain, *loop.extents]
    relocations = []
    for operand in loop.operands:
        if isinstance(operand, Count):
            words += (operand.start, *operand.strides, 0)
        else:
            relocations.append(Relocation(len(words), operand.address))
            words += (0, *operand.strides, operand.pitch)
    if loop.record is not None:
        relocations.append(Relocation(len(words), loop.record))
        words.append(0)
    return Encoded(loop.nest, np.array(words, np.int64), tuple(relocations))


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
