"""Arrays between compute sets: the value of each cell, its tile, and whether it has been written.

The arena's offsets are those of the memory plan. A shadow holds, for each byte of the arena, the number of the buffer
to which it belongs: once another buffer is written to the same bytes, their former contents are gone.
"""

from __future__ import annotations

import numpy as np

from engine.debug.cells import BITS, cell_count, cell_type
from engine.program.program import Buffer

UNWRITTEN, INITIAL, FIRST_NUMBER = 0, 1, 2
"""Values in shadow memory: unwritten, the initial contents of a permanent buffer, and the first buffer's number."""


MOST_NUMBERS = (1 << 16) - FIRST_NUMBER
"""Numbers of shadows; in programs with more buffers than that, some share one."""
HALF_TYPES = 2
"""The shadow of the longest cells takes two words."""


class Home:
    """One buffer's cells. `shadow` is uint16 [bytes]; None where everything is written from the start.

    `owner` is the tile that holds each cell, int16 [cells]: the tile that wrote it last, or at first a tile by an even
    partition.
    """

    def __init__(self, buffer: Buffer, memory: np.ndarray, shadow: np.ndarray | None, number: int, tiles: int) -> None:
        self.buffer, self.number = buffer, number
        count, kind = cell_count(buffer.shape), cell_type(buffer.shape)
        self.cells = memory[: buffer.shape.bytes].view(kind)
        word = BITS[min(2 * kind.itemsize, 8)]
        words = 2 * kind.itemsize // word.itemsize
        self._shadow = None if shadow is None else shadow[: buffer.shape.bytes].view(word).reshape(count, words)
        self._own, self._initial = (word.type(n * (np.iinfo(word).max // 0xFFFF)) for n in (number, INITIAL))
        self.owner = (np.arange(count) * tiles // max(count, 1)).astype(np.int16)

    def written(self) -> np.ndarray | None:
        """Cells that have been written, bool [cells], in this step unless the buffer is permanent; None for all."""
        if self._shadow is None:
            return None
        valid = self._shadow == self._own
        if self.buffer.permanent:
            valid |= self._shadow == self._initial
        whole = valid[:, 0] if valid.shape[1] < HALF_TYPES else valid[:, 0] & valid[:, 1]
        return None if whole.all() else whole

    def write(self, where: np.ndarray, values: np.ndarray, tile: int) -> None:
        """Stores values that a tile has written in the cells numbered `where`."""
        positions = _as_slice(where)
        self.cells[positions] = values
        self.owner[positions] = tile
        if self._shadow is not None:
            self._shadow[positions] = self._own

    def forget(self) -> None:
        """Marks all cells as unwritten."""
        if self._shadow is not None:
            self._shadow[:] = UNWRITTEN

    def value(self) -> np.ndarray:
        """A copy of the array."""
        return self.cells.view(self.buffer.shape.dtype).reshape(self.buffer.shape.dimensions).copy()

    def load(self, value: np.ndarray) -> None:
        """Replaces the whole array, as the host does."""
        self.cells[:] = np.ascontiguousarray(value).reshape(-1).view(self.cells.dtype)
        if self._shadow is not None:
            self._shadow[:] = self._own

    def holder(self, cell: int) -> int:
        """The number of the buffer whose bytes are now at a cell's address."""
        return self.number if self._shadow is None else int(self._shadow[cell, 0]) & 0xFFFF


def _as_slice(numbers: np.ndarray) -> np.ndarray | slice:
    """Numbers as a slice if they are consecutive, as they mostly are."""
    if numbers.size and int(numbers[-1]) - int(numbers[0]) == numbers.size - 1:
        return slice(int(numbers[0]), int(numbers[-1]) + 1)
    return numbers
