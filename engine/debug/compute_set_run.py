"""Runs one compute set: units of each tile in separate memory, twice, with two poisons; then stores the results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.debug.culprits import find_culprit
from engine.debug.findings import Findings
from engine.debug.poison import Poison
from engine.debug.tile import Tile
from engine.debug.uses import Use
from engine.errors import DebugError
from engine.program.program import Buffer
from engine.program.syncs import Ranges


@dataclass(frozen=True, slots=True)
class Outcome:
    """A tile's copy of a buffer after its units, and which of its cells they have changed, bool."""

    cells: np.ndarray
    changed: np.ndarray


Outcomes = dict[Buffer, Outcome]


class ComputeSetRun:
    """One run of a compute set. `words` are, for each tile, the executor's words in a worker's scratch."""

    def __init__(
        self, tile: Tile, uses: dict[Buffer, Use], ranges: Ranges, words: Sequence[Sequence[int]], found: Findings
    ) -> None:
        self._tile, self._uses, self._ranges, self._words, self._found = tile, uses, ranges, words, found
        self._active = [number for number, (lo, hi) in enumerate(ranges) if lo < hi]
        self._loaded: set[Buffer] = set()

    def run(self) -> None:
        """Runs all tiles and stores their results. Raises DebugError for any fault, with the homes unchanged."""
        quiet = {number: self._pass(number, Poison.NAN, {}) for number in self._active}
        self._loaded.clear()
        written = {number: self._foreign(quiet, number) for number in self._active}
        writes: dict[int, dict[Buffer, np.ndarray]] = {}
        for number in self._active:
            loud = self._pass(number, Poison.LOUD, written[number])
            writes[number] = self._agreed(number, quiet[number], loud, written[number])
        self._check_writers(writes)
        for number, of_buffers in writes.items():
            for buffer, cells in of_buffers.items():
                self._uses[buffer].home.write(cells, quiet[number][buffer].cells[cells], number)

    def _pass(self, number: int, kind: Poison, foreign: dict[Buffer, np.ndarray]) -> Outcomes:
        """Fills the tile's copies, runs its units, and finds the changed cells."""
        before: dict[Buffer, np.ndarray] = {}
        for buffer, use in self._uses.items():
            block = self._tile.blocks[buffer]
            if use.is_copied_whole:
                before[buffer] = use.home.cells
                if buffer in self._loaded:
                    continue
                self._loaded.add(buffer)
            else:
                before[buffer] = use.before(number, kind, foreign.get(buffer))
            block.cells[:] = before[buffer]
            block.arm(kind)
        misused = self._tile.run(*self._ranges[number], self._words[number], kind, kind == Poison.NAN)
        if misused is not None:
            raise self._misuse(number, misused)
        found: Outcomes = {}
        for buffer, use in self._uses.items():
            block = self._tile.blocks[buffer]
            beyond = block.breach(kind)
            if beyond is not None:
                raise self._found.outside(buffer, number, beyond)
            changed = block.cells != before[buffer]
            if changed.any():
                self._check_writable(use, number, np.flatnonzero(changed), block.cells)
            if use.writes:
                found[buffer] = Outcome(block.cells.copy(), changed)
        return found

    def _misuse(self, number: int, misused: int | str) -> DebugError:
        """The error of a write to scratch or parameters, as `Tile.run` returns it."""
        if isinstance(misused, int):
            return self._found.gap(number, misused)
        if misused == "scratch":
            return self._found.scratch(number, self._tile.scratch_bytes)
        return self._found.parameters(number)

    def _check_writable(self, use: Use, number: int, cells: np.ndarray, values: np.ndarray) -> None:
        allowed = use.writable(number)
        if allowed is True:
            return
        wrong = cells if isinstance(allowed, bool) else cells[~allowed[cells]]
        if wrong.size:
            raise self._found.undeclared_write(use, number, int(wrong[0]), values)

    def _foreign(self, quiet: dict[int, Outcomes], number: int) -> dict[Buffer, np.ndarray]:
        """Cells that other tiles write and this one may read: it must not matter which tile is faster."""
        found: dict[Buffer, np.ndarray] = {}
        for buffer, use in self._uses.items():
            if use.reads and use.writes:
                others = [np.flatnonzero(each[buffer].changed) for other, each in quiet.items() if other != number]
                if others:
                    found[buffer] = np.concatenate(others)
        return found

    def _agreed(
        self, number: int, quiet: Outcomes, loud: Outcomes, foreign: dict[Buffer, np.ndarray]
    ) -> dict[Buffer, np.ndarray]:
        """The numbers of the cells that a tile has written, if both poisons give the same values."""
        written: dict[Buffer, np.ndarray] = {}
        for buffer, one in quiet.items():
            use, other = self._uses[buffer], loud[buffer]
            cells = np.flatnonzero(one.changed | other.changed)
            different = cells[one.cells[cells] != other.cells[cells]]
            if different.size:
                cell = int(different[0])
                run = self._tile, self._uses, number, self._ranges[number], self._words[number]
                culprit = find_culprit(*run, foreign, buffer, cell)
                raise self._found.dependence(culprit, use, number, cell, one.cells, other.cells)
            written[buffer] = cells
        return written

    def _check_writers(self, writes: dict[int, dict[Buffer, np.ndarray]]) -> None:
        """Raises DebugError for a cell with two writers."""
        for buffer, use in self._uses.items():
            if len(writes) < 2 or not use.writes:
                continue
            writer = np.full(use.home.cells.size, -1, np.int32)
            for number, of_buffers in writes.items():
                cells = of_buffers[buffer]
                twice = np.flatnonzero(writer[cells] >= 0)
                if twice.size:
                    cell = int(cells[twice[0]])
                    raise self._found.two_writers(use, cell, int(writer[cell]), number)
                writer[cells] = number
