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
    """The memory on which one cell of `buffer` depends; if none is found, the cell itself, read before it is written.

    Repeats the units of tile `number`, each time with other poison in a part of its memory.
    """
    quiet = {b: use.before(number, Poison.NAN) for b, use in uses.items()}
    loud = {b: use.before(number, Poison.LOUD, foreign.get(b)) for b, use in uses.items()}

    def result(
        changed: Buffer | None = None,
        cells: np.ndarray | None = None,
        guards: Poison = Poison.NAN,
        scratch: Poison = Poison.NAN,
    ) -> int:
        for each, block in tile.blocks.items():
            block.cells[:] = quiet[each]
            if each is changed and cells is not None:
                block.cells[cells] = loud[each][cells]
            block.arm(guards if each is changed else Poison.NAN)
        tile.run(*units, words, scratch)
        return int(tile.blocks[buffer].cells[cell])

    expected = result()

    def matters(each: Buffer, cells: np.ndarray) -> bool:
        """Whether the result changes with these cells. Its value before is no result."""
        others = cells[cells != cell] if each is buffer else cells
        return bool(others.size) and result(each, others) != expected

    for each in quiet:
        cells = np.flatnonzero(quiet[each] != loud[each])
        if matters(each, cells):
            while halves := [half for half in np.array_split(cells, 2) if cells.size > 1 and matters(each, half)]:
                cells = halves[0]
            return Culprit(each, int(cells[0]))  # or the first of several that only matter together
    for each in quiet:
        # The guards around a buffer, then the initial contents of scratch.
        if result(each, guards=Poison.LOUD) != expected:
            return Culprit(each)
    return Culprit(None) if result(scratch=Poison.LOUD) != expected else Culprit(buffer, cell)
