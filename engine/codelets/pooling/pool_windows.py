"""Pooling of images that need no copy with the initial value around them: windows leave out positions outside.

Parameters: `PooledImages`. Unit: rows of results, counted through all images.
"""

from __future__ import annotations

from functools import cache

from engine.codelets.language.build import Codelet
from engine.codelets.language.record import Address, Record
from engine.codelets.language.vector import BYTES
from engine.codelets.pooling.pool_axis import PoolAxis, along_row
from engine.codelets.pooling.pool_kernels import combining


class PooledImages(Record):
    """The parameters; results are contiguous."""

    operand: Address
    initial: Address
    result: Address
    images: int
    image: int  # bytes between images of the operand
    channels: int
    unit_rows: int
    high: PoolAxis
    wide: PoolAxis


@cache
def pool_windows(opcode: str, kind: str, columns: int, step: int) -> Codelet:
    """Makes the codelet for windows of `columns` columns, `step` apart, of elements of type f32, f16 or bf16 (`kind`).

    `opcode`, "add", "maximum", "maximum-number" or "minimum", combines them in float32.
    """
    size = BYTES[kind]
    combine_row = along_row(combining(opcode, kind, columns, step), columns, step)

    def pool(parameters: int, lo: int, hi: int, scratch: int) -> None:
        given = PooledImages.read(parameters)
        rows, row_bytes = given.high.windows, size * given.wide.windows * given.channels
        for row in range(lo * given.unit_rows, min(hi * given.unit_rows, given.images * rows)):
            image, result = given.operand + row // rows * given.image, given.result + row * row_bytes
            combine_row(given.high, given.wide, image, row % rows, given.channels, given.initial, result, size)

    suffix = "" if kind == "f32" else f"_{kind}"
    return Codelet(pool, f"pool_windows_{opcode}_{columns}_{step}{suffix}", in_vectors=True)
