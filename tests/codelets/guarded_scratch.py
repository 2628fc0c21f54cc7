"""Scratch whose gaps and end must stay as they are."""

from __future__ import annotations

import numpy as np

from engine.codelets.language.scratch import ScratchSpace
from engine.machine_code.abi import Scratch
from engine.runtime.buffers import aligned_zeros

BLANK = 0xFF
"""Value of each unwritten byte: NaN as a float, so that reading what was not written shows."""
GUARD = 1024
"""Bytes after the scratch that no codelet may change."""


class GuardedScratch:
    """A worker's scratch of at most `most_bytes` bytes after the executor's words, at `address`."""

    def __init__(self, most_bytes: int) -> None:
        self.memory = aligned_zeros(Scratch.BYTES + most_bytes + GUARD)
        self._own = self.memory[Scratch.BYTES :]
        self._own[:] = BLANK
        self.address: int = self.memory.ctypes.data

    def _guards(self, space: ScratchSpace) -> list[tuple[int, int]]:
        return [*space.gaps, (space.bytes, space.bytes + GUARD)]

    def blank(self, space: ScratchSpace) -> None:
        """Fills the guards before a codelet with that space runs: earlier codelets may have written there."""
        for begin, end in self._guards(space):
            self._own[begin:end] = BLANK

    def check(self, space: ScratchSpace, name: str = "the codelet") -> None:
        """Checks the guards after a codelet: raises AssertionError for a write outside its areas."""
        for begin, end in self._guards(space):
            changed = np.flatnonzero(self._own[begin:end] != BLANK)
            assert not changed.size, f"{name} writes to byte {begin + changed[0]} of scratch, after an area"
