"""Multiplies all rows of a block by one panel of B: partitions the rows among micro kernels."""

from __future__ import annotations

from functools import cache

import numpy as np

from engine.codelets.language.build import Inner, inner
from engine.codelets.products import micro_kernel as kernels
from engine.machine_code.processor import lanes

LANES = lanes()
STEP_LIMIT = max(len(kernels.row_steps(vectors)) for vectors in kernels.row_counts())


def _steps() -> np.ndarray:
    """The table [vectors, rows that remain] of the rows of the next micro kernel."""
    table = np.zeros((kernels.panel_vectors() + 1, STEP_LIMIT + 1), np.int64)
    for vectors, counts in kernels.row_counts().items():
        steps = kernels.row_steps(vectors)
        table[vectors] = counts[0]
        table[vectors, : len(steps)] = steps
    return table


STEPS = _steps()


def _repeats() -> np.ndarray:
    """The table [vectors, rows that remain] of the number of consecutive calls of the next micro kernel."""
    table = np.ones_like(STEPS)
    for vectors in kernels.row_counts():
        for rest in range(1, STEP_LIMIT + 1):
            step = STEPS[vectors, rest]
            if rest > step and STEPS[vectors, rest - step] == step:
                table[vectors, rest] += table[vectors, rest - step]
    return table


REPEATS = _repeats()


NOTHING_AHEAD = (0, 0, 0, 0)
"""The `prefetched` of kernels that prefetch nothing."""


@cache
def panels(store: str, pairs: bool = False, right: str = "f32") -> Inner:
    """Makes `multiply_panel` with the kernels of `micro_kernels(store, pairs)`.

    If elements of B are of another type than float32, the panel is in memory: the first kernel packs it for the others
    at the address and with the pitch of `prefetched`, and nothing is prefetched.
    """
    kernel, packs = kernels.micro_kernels(store, pairs), right != "f32"
    packing_kernel = kernels.micro_kernels(store, right=right)

    @inner
    def multiply_panel(
        rows: int,
        columns: int,
        k: int,
        packed_rows: tuple[int, int, int],
        packed_panel: tuple[int, int],
        prefetched: tuple[int, int, int, int],
        then_prefetched: tuple[int, int, int, int],
        c: int,
        row_c: int,
        accumulate: int,
    ) -> None:
        """C[row_c[m] + size * n] (+)= sum over k of A[row_a[m] + offset_a[k]] * B[k * pitch_b + 4n].

        m < rows, n < columns. packed_rows is (A, row_a, offset_a), packed_panel (B, pitch_b): addresses and bytes;
        1 <= columns <= panel_columns(), k >= 1. With AS_HALF as `accumulate` C is of 16-bit floats. `prefetched`: the
        address that the micro kernels prefetch, the distance to the second line, the pitch along k, and the number of
        blocks; `then_prefetched`: likewise, for the blocks after these.
        """
        vectors = (columns + LANES - 1) // LANES
        last_columns = columns - LANES * (vectors - 1)
        a, row_a, offset_a = packed_rows
        b, pitch_b = packed_panel
        ahead, second_ahead, pitch_ahead, blocks_ahead = prefetched
        then, second_then, pitch_then, blocks_then = then_prefetched
        done = 0
        if packs:
            done = STEPS[vectors, min(rows, STEP_LIMIT)]
            operands = a, row_a, offset_a, b, pitch_b, c, row_c, k
            packing_kernel(done, vectors, *operands, accumulate, last_columns, 1, *prefetched)
            b, pitch_b, ahead = ahead, pitch_ahead, 0
        while done < rows:
            if blocks_ahead <= 0 and blocks_then > 0:
                ahead, second_ahead, pitch_ahead, blocks_ahead = then, second_then, pitch_then, blocks_then
                blocks_then = 0
            rest = rows - done
            step = STEPS[vectors, min(rest, STEP_LIMIT)]
            blocks = REPEATS[vectors, rest] if rest <= STEP_LIMIT else (rest - STEP_LIMIT + step - 1) // step
            if blocks_then > 0:
                blocks = min(blocks, blocks_ahead)
            operands = a, row_a + 8 * done, offset_a, b, pitch_b, c, row_c + 8 * done, k
            lines = ahead, second_ahead, pitch_ahead, blocks_ahead
            kernel(step, vectors, *operands, accumulate, last_columns, blocks, *lines)
            done += step * blocks
            ahead += 2 * second_ahead * blocks
            blocks_ahead -= blocks

    return multiply_panel
