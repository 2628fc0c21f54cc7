"""Products by one vector of columns. Each multiply-add loads an element of A, and little else is loaded.

The general kernels read from tables where the rows of A are. Here rows are evenly spaced, by a constant that is part
of the instructions.
"""

from __future__ import annotations

from functools import cache, partial
from typing import NamedTuple

import numpy as np

from engine.codelets.language import vector
from engine.codelets.language.build import Inner, inner
from engine.codelets.language.loops import EmittedLoop
from engine.codelets.language.memory import F32, I64, POINTER
from engine.codelets.language.switched import switched
from engine.codelets.products.micro_kernel import add_or_write
from engine.machine_code.llvm import ir
from engine.machine_code.processor import lanes, registers

LANES = lanes()
VECTOR = 4 * LANES


class Narrow(NamedTuple):
    """Layout of A: bytes between its rows and between its elements along k, in blocks of `block` elements if not 0."""

    name: str
    row: int
    k: int
    block: int


OF_TILES = Narrow("narrow_tiles", VECTOR, 4, LANES)
"""A layout whose rows are tiles and whose k are features, in blocks of a vector."""
OF_FEATURES = Narrow("narrow_features", 4, VECTOR, 0)
"""A layout whose rows are the features of a vector and whose k are tiles."""
ROWS = (24, 16, 12, 8, 4, 2, 1) if registers() == 32 else (12, 8, 4, 2, 1)
"""Numbers of rows of the kernels: their sums fit in registers, besides a vector of B."""


STEPS = np.array([1, *(max(each for each in ROWS if each <= rest) for rest in range(1, ROWS[0] + 1))], np.int64)
"""Rows of the next kernel, by the number of rows that remain."""


@cache
def narrow_products(narrow: Narrow) -> Inner:
    """Makes `multiply_vector` for A with this layout."""
    kernel, row = switched(narrow.name, ROWS, partial(_write_kernel, narrow)), narrow.row

    @inner
    def multiply_vector(rows: int, k: int, a: int, block: int, b: int, c: int, pitch_c: int, adds: int) -> None:
        """C[m * pitch_c + 4n] (+)= sum over k of A[m, k] * B[k * VECTOR + 4n], n < LANES.

        There are `block` bytes between blocks of k. Products are added in the order of k, as in the general kernels.
        """
        done = 0
        while done < rows:
            step = STEPS[min(rows - done, ROWS[0])]
            kernel(step, a + row * done, block, b, c + pitch_c * done, pitch_c, k, adds)
            done += step

    return multiply_vector


def _write_kernel(narrow: Narrow, builder: ir.IRBuilder, rows: int, arguments: tuple[ir.Value, ...]) -> None:
    """Writes the function for `rows` rows."""
    a, block, b, c, pitch_c, k, adds = arguments
    sums = [vector.zeros()] * rows
    if narrow.block:
        blocks = EmittedLoop(builder, "blocks", I64(0), k, I64(narrow.block), [a, b, *sums])
        rest = builder.sub(k, blocks.at)
        count = builder.select(builder.icmp_signed("<", rest, I64(narrow.block)), rest, I64(narrow.block))
        a, b, *sums = blocks.carried
        b, sums = _summed(builder, narrow, a, b, count, sums)
        blocks.close([builder.add(a, block), b, *sums])
    else:
        _, sums = _summed(builder, narrow, a, b, k, sums)
    c_rows = [builder.add(c, builder.mul(pitch_c, I64(i))) for i in range(rows)]
    add_or_write(builder, c_rows, [[total] for total in sums], adds, [None])


def _summed(
    builder: ir.IRBuilder, narrow: Narrow, a: ir.Value, b: ir.Value, k: ir.Value, sums: list[ir.Value]
) -> tuple[ir.Value, list[ir.Value]]:
    """Emits the loop over k: returns the address after B, and the sums with their products added."""
    loop = EmittedLoop(builder, "k", I64(0), k, I64(1), [a, b, *sums])
    a, b, *sums = loop.carried
    row = vector.load_vector(builder, b)
    for i, total in enumerate(sums):
        element = builder.load(builder.inttoptr(builder.add(a, I64(narrow.row * i)), POINTER), align=4, typ=F32)
        sums[i] = vector.multiply_add(builder, vector.splat(builder, element), row, total)
    following = builder.add(b, I64(VECTOR))
    loop.close([builder.add(a, I64(narrow.k)), following, *sums])
    return following, sums
