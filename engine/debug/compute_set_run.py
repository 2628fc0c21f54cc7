"""Runs one compute set: units of each tile in separate memory, twice, with two poisons; then stores the results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.debug.culprits import Trials
from engine.debug.findings import Findings
from engine.debug.poison import Poison
from engine.debug.tile import Tile
from engine.debug.uses import Use
from engine.errors import DebugError
from engine.program.program import Buffer
from engine.program.touches import Ranges


@dataclass(frozen=True, slots=True)
class CellChange:
    """Cells of a tile's copy that have changed, by number, and their new values."""

    cells: np.ndarray
    values: np.ndarray


Changes = dict[Buffer, CellChange]


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
        changes: dict[int, Changes] = {}
        for number in self._active:
            loud = self._pass(number, Poison.LOUD, written[number])
            changes[number] = self._agreed(number, quiet[number], loud, written[number])
        self._check_writers(changes)
        for number, changed in changes.items():
            for buffer, change in changed.items():
                self._uses[buffer].home.write(change.cells, change.values, number)

    def _pass(self, number: int, kind: Poison, foreign: dict[Buffer, np.ndarray]) -> Changes:
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
        changes: Changes = {}
        for buffer, use in self._uses.items():
            block = self._tile.blocks[buffer]
            beyond = block.breach(kind)
            if beyond is not None:
                raise self._found.outside(buffer, number, beyond)
            cells = np.flatnonzero(block.cells != before[buffer])
            if cells.size:
                self._check_writable(use, number, cells, block.cells)
                changes[buffer] = CellChange(cells, block.cells[cells])
        return changes

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

    def _foreign(self, changes: dict[int, Changes], number: int) -> dict[Buffer, np.ndarray]:
        """Cells that other tiles write and this one may read: it must not matter which tile is faster."""
        found: dict[Buffer, np.ndarray] = {}
        for buffer, use in self._uses.items():
            if use.reads and use.writes:
                others = [c[buffer].cells for other, c in changes.items() if other != number and buffer in c]
                if others:
                    found[buffer] = np.concatenate(others)
        return found

    def _agreed(self, number: int, quiet: Changes, loud: Changes, foreign: dict[Buffer, np.ndarray]) -> Changes:
        """The cells that a tile has written, if both poisons give the same values."""
        agreed: Changes = {}
        for buffer in dict.fromkeys([*quiet, *loud]):
            use = self._uses[buffer]
            one, other = quiet.get(buffer, _NOTHING), loud.get(buffer, _NOTHING)
            if np.array_equal(one.cells, other.cells):
                cells, first, second = one.cells, one.values, other.values
            else:
                cells = np.union1d(one.cells, other.cells)
                first = _after(use.before_at(cells, number, Poison.NAN), cells, one)
                second = _after(use.before_at(cells, number, Poison.LOUD, foreign.get(buffer)), cells, other)
            different = np.flatnonzero(first != second)
            if different.size:
                position = different[0]
                run = self._tile, self._uses, number, self._ranges[number], self._words[number]
                culprit = Trials(*run, foreign, buffer, int(cells[position])).culprit()
                raise self._found.dependence(culprit, use, number, int(cells[position]), first, second, int(position))
            agreed[buffer] = CellChange(cells, first)
        return agreed

    def _check_writers(self, changes: dict[int, Changes]) -> None:
        """Raises DebugError for a cell with two writers."""
        for buffer, use in self._uses.items():
            if len(changes) < 2 or not use.writes:
                continue
            writer = np.full(use.home.cells.size, -1, np.int32)
            for number, changed in changes.items():
                if buffer not in changed:
                    continue
                cells = changed[buffer].cells
                twice = np.flatnonzero(writer[cells] >= 0)
                if twice.size:
                    cell = int(cells[twice[0]])
                    raise self._found.two_writers(use, cell, int(writer[cell]), number)
                writer[cells] = number


_NOTHING = CellChange(np.zeros(0, np.intp), np.zeros(0, np.uint8))


def _after(before: np.ndarray, cells: np.ndarray, change: CellChange) -> np.ndarray:
    """Values of some cells after a run."""
    if change.cells.size:
        before[np.searchsorted(cells, change.cells)] = change.values
    return before
