"""A compute set's declared accesses to its buffers, and the contents of a tile's copy of each before it runs."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from engine.debug.homes import Home
from engine.debug.poison import Poison, poison
from engine.debug.span_elements import Mask, SpanElements, mask_of
from engine.program.program import Buffer


@dataclass(eq=False, slots=True)
class Use:
    """One buffer in one compute set: its home, cells that tiles may read and write, and cells `written` so far."""

    home: Home
    reads: list[SpanElements] = field(default_factory=list)
    writes: list[SpanElements] = field(default_factory=list)
    written: np.ndarray | None = None

    @property
    def buffer(self) -> Buffer:
        return self.home.buffer

    @property
    def is_copied_whole(self) -> bool:
        """Whether each tile gets a copy of the whole buffer, and may write none of it."""
        return (
            not self.writes and self.written is None and any(span_element.tiles is None for span_element in self.reads)
        )

    def copied(self, tile: int) -> Mask:
        """The cells that are copied to a tile: those it may read and that have been written."""
        mask = mask_of(self.reads, tile)
        if mask is False or self.written is None:
            return mask
        return self.written if isinstance(mask, bool) else mask & self.written

    def writable(self, tile: int) -> Mask:
        """The cells that a tile may write."""
        return mask_of(self.writes, tile)

    def before(self, tile: int, kind: Poison, foreign: np.ndarray | None = None) -> np.ndarray:
        """A tile's copy before its units run; the `foreign` cells (numbers) are poisoned, too."""
        copied = self.copied(tile)
        if copied is True and foreign is None:
            return self.home.cells.copy()
        blank = poison(kind, self.buffer.shape, self.home.cells.size, self.home.number)
        if copied is False:
            return blank
        made = self.home.cells.copy() if copied is True else np.where(copied, self.home.cells, blank)
        if foreign is not None:
            made[foreign] = blank[foreign]
        return made
