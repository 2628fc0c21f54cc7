"""Tables that parameters point to: every tile has a copy on the chip, and no codelet may write them."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from engine.debug.findings import title
from engine.errors import DebugError
from engine.program.program import ComputeSet
from engine.program.work.base import Encoded


class Tables:
    """Checksums of the tables of some compute sets, to which their encoded blocks point."""

    def __init__(self, compute_sets: Sequence[ComputeSet], blocks: Sequence[Encoded]) -> None:
        pairs = zip(compute_sets, blocks, strict=True)
        self._held = [(each, block, _sum(block)) for each, block in pairs if block.tables]

    def check(self) -> None:
        """Raises DebugError if a table has changed since construction."""
        for compute_set, block, before in self._held:
            if _sum(block) != before:
                raise DebugError(
                    f"Expected the tables of {title(compute_set)} to stay as they are. Received: a write into one. "
                    f"Look for a wrong address in its parameters, or in those of a compute set beside it."
                )


def _sum(block: Encoded) -> int:
    found = 0
    for _, table in block.tables:
        found = zlib.crc32(np.ascontiguousarray(table).view(np.uint8).reshape(-1).data, found)
    return found
