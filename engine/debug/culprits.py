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


class _Trials:
    """Runs one tile's units repeatedly, each time with another part of its memory loud."""

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

    def guards_matter(self, buffer: Buffer) -> bool:
        """Whether the result changes with the guards around a buffer."""
        return self._run(buffer, None, Poison.LOUD, Poison.NAN) != self._expected

    def scratch_matters(self) -> bool:
        """Whether the result changes with the initial contents of scratch."""
        return self._run(None, None, Poison.NAN, Poison.LOUD) != self._expected


def find_culprit(
    tile: Tile,
    uses: dict[Buffer, Use],
    number: int,
    units: tuple[int, int],
    words: Sequence[int],
    foreign: dict[Buffer, np.ndarray],
    buffer: Buffer,
    cell: int,
) -> Culprit:
    """The memory that cell `cell` of `buffer` depends on, after tile `number` has run its `units`.

    The cell itself where nothing else is found: it is then read before it is written.
    """
    trials = _Trials(tile, uses, number, units, words, foreign, buffer, cell)
    for each in uses:
        cells = np.flatnonzero(trials.quiet[each] != trials.loud[each])
        if trials.matters(each, cells):
            return Culprit(each, _halved(trials, each, cells))
    for each in uses:
        if trials.guards_matter(each):
            return Culprit(each)
    return Culprit(None) if trials.scratch_matters() else Culprit(buffer, cell)


def _halved(trials: _Trials, buffer: Buffer, cells: np.ndarray) -> int:
    """A cell that matters; the first of those that only matter together."""
    while cells.size > 1:
        halves = cells[: cells.size // 2], cells[cells.size // 2 :]
        matters = [half for half in halves if trials.matters(buffer, half)]
        if not matters:
            break
        cells = matters[0]
    return int(cells[0])
