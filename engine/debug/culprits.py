"""Finds, by bisection, the memory on which a result depends although it must not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.debug.poison import Poison
from engine.debug.tile import Tile
from engine.debug.uses import Use
from engine.program.program import Buffer


@dataclass(frozen=True, slots=True)
class Culprit:
    """The cell that was read: of a buffer, of the guards around it (no cell), or of scratch (no buffer)."""

    buffer: Buffer | None
    cell: int | None = None


class Trials:
    """Repeats one tile's units, each time with other poison in a part of its memory; compares one cell of `buffer`."""

    def __init__(
        self,
        tile: Tile,
        uses: dict[Buffer, Use],
        number: int,
        units: tuple[int, int],
        words: Sequence[int],
        foreign: dict[Buffer, np.ndarray],
        buffer: Buffer,
        cell: int,
    ) -> None:
        self._tile, self._units, self._words = tile, units, words
        self._buffer, self._cell = buffer, cell
        self.quiet = {b: use.before(number, Poison.NAN) for b, use in uses.items()}
        self.loud = {b: use.before(number, Poison.LOUD, foreign.get(b)) for b, use in uses.items()}
        self._expected = self._run(None, None, Poison.NAN, Poison.NAN)

    def _run(self, loud: Buffer | None, cells: np.ndarray | None, guards: Poison, scratch: Poison) -> int:
        for buffer, block in self._tile.blocks.items():
            block.cells[:] = self.quiet[buffer]
            if buffer is loud and cells is not None:
                block.cells[cells] = self.loud[buffer][cells]
            block.arm(guards if buffer is loud else Poison.NAN)
        self._tile.run(*self._units, self._words, scratch)
        return int(self._tile.blocks[self._buffer].cells[self._cell])

    def matters(self, buffer: Buffer, cells: np.ndarray) -> bool:
        """Whether the result changes with these cells."""
        if buffer is self._buffer and self._cell in cells:
            cells = cells[cells != self._cell]  # its value before is no result
        return bool(cells.size) and self._run(buffer, cells, Poison.NAN, Poison.NAN) != self._expected

    def culprit(self) -> Culprit:
        """The memory on which the cell depends; if none is found, the cell itself, read before it is written."""
        for each in self.quiet:
            cells = np.flatnonzero(self.quiet[each] != self.loud[each])
            if self.matters(each, cells):
                return Culprit(each, self._halved(each, cells))
        for each in self.quiet:
            # The guards around a buffer, then the initial contents of scratch.
            if self._run(each, None, Poison.LOUD, Poison.NAN) != self._expected:
                return Culprit(each)
        by_scratch = self._run(None, None, Poison.NAN, Poison.LOUD) != self._expected
        return Culprit(None) if by_scratch else Culprit(self._buffer, self._cell)

    def _halved(self, buffer: Buffer, cells: np.ndarray) -> int:
        """A cell that matters, or the first of several that only matter together."""
        while cells.size > 1:
            halves = cells[: cells.size // 2], cells[cells.size // 2 :]
            matters = [half for half in halves if self.matters(buffer, half)]
            if not matters:
                break
            cells = matters[0]
        return int(cells[0])
