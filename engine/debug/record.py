"""Record of a run: compute sets in order, the active tiles of each, and the bytes exchanged between tiles."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from engine.debug.drawing import exchange_drawing
from engine.program.program import ComputeSet
from engine.shown import preformatted

HEADINGS = ("superstep", "compute set", "units", "tiles", "runs", "bytes exchanged", "most to a tile", "host", "from")
LEFT = (1, len(HEADINGS) - 1)
"""Columns of names, which are aligned to the left."""
MOST_DRAWINGS = 12
"""Most exchanges that a notebook shows of one program."""


@dataclass(eq=False, slots=True)
class Superstep:
    """One compute set, and the exchange before it.

    `number` counts supersteps: compute sets of one number follow each other without a sync. `latest` is int64
    [tiles, tiles], bytes from tile to tile before its last run; `bytes` the sum over all `runs`. `host_bytes` are bytes
    from or to the host, over all runs.
    """

    number: int
    name: str
    op_name: str
    units: int
    tiles: int
    bytes: np.ndarray
    latest: np.ndarray
    runs: int = 0
    host_bytes: int = 0

    @property
    def exchanged(self) -> int:
        """Bytes between tiles before the last run."""
        return int(self.latest.sum())

    @property
    def received(self) -> np.ndarray:
        """Bytes that each tile received before the last run, int64 [tiles]."""
        return np.asarray(self.latest.sum(axis=0))

    @property
    def sent(self) -> np.ndarray:
        """Bytes that each tile sent before the last run, int64 [tiles]."""
        return np.asarray(self.latest.sum(axis=1))

    def _repr_html_(self) -> str:
        """Senders above and receivers below, with the bytes before the last run as lines, for notebooks."""
        where = f"Superstep {self.number}, before {self.name}"
        return exchange_drawing(self.latest, f"{where}: {self.exchanged:,} bytes between tiles")


class DebugRecord:
    """The supersteps of a program, in the order of its step table, summed over all steps so far."""

    def __init__(self, name: str, tiles: int) -> None:
        self.name, self.tiles = name, tiles
        self.steps = 0
        self.supersteps: list[Superstep] = []
        self._known: dict[int, Superstep] = {}
        self._running = self.step_bytes = 0

    def know(self, compute_set: ComputeSet, tiles: int, number: int) -> None:
        """Registers a compute set of the step table, which `tiles` tiles will run in superstep `number`."""
        if id(compute_set) not in self._known:
            moved, latest = (np.zeros((self.tiles, self.tiles), np.int64) for _ in range(2))
            made = Superstep(number, compute_set.name, compute_set.op_name, compute_set.units, tiles, moved, latest)
            self._known[id(compute_set)] = made
            self.supersteps.append(made)

    def ran(self, compute_set: ComputeSet, exchanged: np.ndarray, host_bytes: int) -> None:
        """Records a run, with bytes `exchanged` from tile to tile before it and `host_bytes` from or to the host."""
        superstep = self._known[id(compute_set)]
        superstep.runs += 1
        superstep.bytes += exchanged
        superstep.latest[:] = exchanged
        self._running += int(exchanged.sum())
        superstep.host_bytes += host_bytes

    def completed(self) -> None:
        """Records that a step is complete: `step_bytes` are the bytes between tiles in it."""
        self.steps += 1
        self.step_bytes, self._running = self._running, 0

    @property
    def syncs(self) -> int:
        """The least number of syncs of a step: they separate its supersteps."""
        return len({each.number for each in self.supersteps})

    def table(self) -> str:
        """A line for each compute set that has run, as text."""
        ran = [each for each in self.supersteps if each.runs]
        head = (
            f"{self.name}: {_counted(self.steps, 'step')} on {_counted(self.tiles, 'tile')}, "
            f"{_counted(self.syncs, 'superstep')}, {self.step_bytes:,} bytes exchanged in the last step"
        )
        return "\n".join([head, *_aligned([HEADINGS, *(_row(each) for each in ran)])])

    def __str__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        """A drawing of each exchange and the table, for notebooks."""
        drawn = [each._repr_html_() for each in self.supersteps if each.exchanged]
        return "".join([*drawn[:MOST_DRAWINGS], preformatted(self.table())])


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _row(superstep: Superstep) -> tuple[str, ...]:
    numbers = (superstep.exchanged, int(superstep.received.max(initial=0)), superstep.host_bytes // superstep.runs)
    counts = (superstep.units, superstep.tiles, superstep.runs, *numbers)
    origin = "/".join(dict.fromkeys(superstep.op_name.split("/")[-2:]))
    return (str(superstep.number), superstep.name, *(f"{each:,}" for each in counts), origin)


def _aligned(rows: list[tuple[str, ...]]) -> Iterable[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [f"{c:<{w}}" if k in LEFT else f"{c:>{w}}" for k, (c, w) in enumerate(zip(row, widths, strict=True))]
        yield "  ".join(cells).rstrip()
