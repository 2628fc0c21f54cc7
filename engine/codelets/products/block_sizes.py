"""Sizes of blocks of float32 products by the second-level cache. They never change the order of sums."""

from __future__ import annotations

from typing import NamedTuple

from engine.machine_code.caches import LARGE

WIDE = 16  # lanes of AVX-512
MOST_FLOATS = 1 << 17  # of packed panels, in any cache


class BlockSizes(NamedTuple):
    """Sizes of blocks of A. Rows of the largest stream past packed panels of B; past other blocks the panels stream."""

    b_floats: int
    """Elements of packed panels of B, which stay in the second-level cache while rows of A stream."""
    group_rows: int
    """Rows multiplied by all packed panels before the next rows are: whole kernels."""
    least_rows: int
    """Rows of a block from which they stream; fewer stay in the cache."""
    least_size: int
    """Rows and columns together beyond which rows stream: blocks of A and B of fewer stay in the cache anyway."""
    least_bytes: int
    """Bytes of a block of A beyond which its rows stream."""
    line_columns: int
    """Columns up to which packed A stays in lines of rows, and is not transposed: each k reads a line of it."""


def block_sizes(cache_bytes: int, lanes: int) -> BlockSizes:
    """Chooses sizes for a second-level cache and vectors of so many lanes.

    Those for a large cache are from two cores of a Xeon with AVX-512 and 2 MiB, those for a small one or short vectors
    from two cores of a Zen 3 with 512 KiB and of a Zen 4 with 1 MiB and AVX2, all of November 2026. Panels leave small
    caches sooner, and few rows prefetch only a part of the next panel, so groups are larger for small caches.
    Transposing A pays for more columns than line_columns, because rows of A are then read with fewer misses. With 8
    lanes it pays for any number of columns.
    """
    if cache_bytes >= LARGE and lanes >= WIDE:
        return BlockSizes(MOST_FLOATS, group_rows=24, least_rows=384, least_size=1024, least_bytes=0, line_columns=256)
    half = cache_bytes // 2
    floats = min(half // 4, MOST_FLOATS)
    return BlockSizes(floats, group_rows=48, least_rows=0, least_size=0, least_bytes=half, line_columns=0)
