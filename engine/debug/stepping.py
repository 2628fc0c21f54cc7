"""One step: the rows of the step table in order, each compute set checked and run on all tiles.

A search for missing syncs: accesses of tiles between two syncs, by byte of the arena that they share.

The search follows the step table as it was built, and spans, but not the reasoning by which syncs were placed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from engine.codelets.language.encoded import Encoded
from engine.debug.aside import Aside
from engine.debug.cells import cell_type, position_of
from engine.debug.compute_set_run import ComputeSetRun
from engine.debug.control_flow import Walk
from engine.debug.findings import Findings, title
from engine.debug.host import HostSide
from engine.debug.memory import TileHomes
from engine.debug.record import DebugRecord
from engine.debug.span_elements import NO_TILE, SpanElements, SpanTable, mask_of
from engine.debug.tile import Tile, touched
from engine.debug.uses import Use
from engine.errors import DebugError
from engine.machine_code.abi import Scratch
from engine.program.program import Buffer, ComputeSet, Program, Span
from engine.program.touches import Ranges
from engine.program.work.host_call import HostCall
from engine.program.work.value_check import ValueCheckWork
from engine.runtime.buffers import DeviceBuffer
from engine.runtime.executor import COMPUTING, Column, RowKind


@dataclass(frozen=True, slots=True)
class TouchedParts:
    """An access to parts of a buffer at an address, by the compute set or branch `who`.

    If `claimed`, any tile may access all of these parts.
    """

    span_element: SpanElements
    address: int
    who: str
    writes: bool
    claimed: bool = False

    @property
    def buffer(self) -> Buffer:
        return self.span_element.span.buffer

    @property
    def end(self) -> int:
        return self.address + self.buffer.shape.bytes

    def tiles(self, begin: int, end: int) -> np.ndarray:
        """The tile of each byte between two addresses, int16; -2 where all active ones may access it, -1 for none."""
        if self.span_element.tiles is None:
            only = self.span_element.active[0] if len(self.span_element.active) == 1 and not self.claimed else -2
            return np.full(end - begin, only, np.int16)
        size = cell_type(self.buffer.shape).itemsize
        first, last = (begin - self.address) // size, -(-(end - self.address) // size)
        start = begin - self.address - first * size
        tiles = np.repeat(self.span_element.tiles[first:last], size)[start : start + end - begin]
        return np.where(tiles == -1, tiles, np.int16(-2)) if self.claimed else tiles


class Hazards:
    """The accesses since the last sync."""

    def __init__(self) -> None:
        self._touches: list[TouchedParts] = []

    def sync(self) -> None:
        """Forgets all accesses: the tiles have synchronised."""
        self._touches.clear()

    def sync_claimed(self) -> None:
        """Forgets the accesses of claimed compute sets: all their parts are complete."""
        self._touches = [touch for touch in self._touches if not touch.claimed]

    def check(self, who: str, touches: list[TouchedParts]) -> None:
        """Raises DebugError if a tile accesses bytes that another one may still be reading or writing."""
        self._compare(who, touches)
        self._touches += touches

    def _compare(self, who: str, touches: list[TouchedParts]) -> None:
        for new in touches:
            for old in self._touches:
                if not (old.writes or new.writes) or old.end <= new.address or new.end <= old.address:
                    continue
                if (
                    not (old.claimed or new.claimed)
                    and old.span_element.tiles is not None
                    and old.span_element.tiles is new.span_element.tiles
                    and old.buffer is new.buffer
                ):
                    continue
                self._conflict(who, old, new)

    @staticmethod
    def _conflict(who: str, old: TouchedParts, new: TouchedParts) -> None:
        if not old.span_element.active or not new.span_element.active:
            return
        begin, end = max(old.address, new.address), min(old.end, new.end)
        first, second = old.tiles(begin, end), new.tiles(begin, end)
        found = np.flatnonzero((first != -1) & (second != -1) & ((first != second) | (first == -2)))
        if not found.size:
            return
        byte = begin + int(found[0])
        verbs = "writes" if new.writes else "reads", "wrote" if old.writes else "read"
        cell = (byte - new.address) // cell_type(new.buffer.shape).itemsize
        position = (byte - old.address) // cell_type(old.buffer.shape).itemsize
        raise DebugError(
            f"Expected a sync between {old.who} and {who}. Received: none, though tile {_tile(second, found[0])} "
            f"{verbs[0]} {position_of(new.buffer.shape, cell)} of {new.buffer.name!r}"
            f" where tile {_tile(first, found[0])} {verbs[1]}"
            f" {position_of(old.buffer.shape, position)} of {old.buffer.name!r}. "
            f"Look at engine/program/syncs.py, and at what both say in their spans."
        )


def _tile(tiles: np.ndarray, at: int) -> str:
    return "any" if tiles[at] == -2 else str(int(tiles[at]))


OFF_CHIP = ("constant", "queue")
"""Kinds of buffers without exchange: all tiles have a copy of constants from the start; rings are in host memory."""


def exchanged(uses: Iterable[Use], tiles: int) -> np.ndarray:
    """Bytes from tile to tile, int64 [source, destination]."""
    moved = np.zeros((tiles, tiles), np.int64)
    for use in uses:
        if use.reads and use.buffer.kind not in OFF_CHIP:
            moved += _moved(use, tiles) * use.home.cells.itemsize
    np.fill_diagonal(moved, 0)
    return moved


def _moved(use: Use, tiles: int) -> np.ndarray:
    """Cells of one buffer that each tile reads, by the tile that holds them: int64 [holder, reader]."""
    owner = use.home.owner if use.written is None else use.home.owner[use.written]
    found = np.zeros((tiles, tiles), np.int64)
    if any(span_element.tiles is None for span_element in use.reads):
        found[:, list(use.reads[0].active)] = np.bincount(owner, minlength=tiles)[:, None]
    elif len(use.reads) == 1:
        reader = use.reads[0].tiles
        assert reader is not None
        reader = reader if use.written is None else reader[use.written]
        wanted = reader != NO_TILE
        pairs = np.bincount(owner[wanted].astype(np.int64) * tiles + reader[wanted], minlength=tiles * tiles)
        found += pairs.reshape(tiles, tiles)
    else:
        for tile in use.reads[0].active:
            mask = mask_of(use.reads, tile)
            assert isinstance(mask, np.ndarray)
            found[:, tile] = np.bincount(owner[mask if use.written is None else mask[use.written]], minlength=tiles)
    return found


def from_host(uses: Iterable[Use]) -> int:
    """Bytes from or to the host: feeds that are written, and rows of rings."""
    return sum(
        use.buffer.shape.bytes
        for use in uses
        if (use.buffer.kind == "feed" and use.writes) or (use.buffer.kind == "queue" and "leaf" in use.buffer.name)
    )


NOTHING = np.zeros((), np.int64)


def awaits_claims(row: np.ndarray) -> bool:
    """Whether a worker waits at a row for the claimed compute sets before it."""
    return bool(row[Column.KIND] == RowKind.CLAIMED and row[Column.PREDICATE] < row[Column.TARGET])


@dataclass(eq=False)
class Stepper:
    """Runs the steps of one call, `steps` in all.

    `sets` are compute sets, their blocks and their codelets by the address of the block's words, `predicates` buffers
    by address, as in the `table`; `address` gives a buffer's address in the fast executor. `distributed` has,
    by the id of an outfeed's compute set, the array [steps, ...] that it writes.
    """

    program: Program
    table: np.ndarray
    steps: int
    sets: dict[int, tuple[ComputeSet, Encoded, int]]
    predicates: dict[int, Buffer]
    address: Callable[[Buffer], int]
    memory: TileHomes
    host: HostSide
    distributed: dict[int, np.ndarray]
    span_table: SpanTable
    aside: Aside
    record: DebugRecord

    def __post_init__(self) -> None:
        self._hazards = Hazards()
        self._tiles = (self.table.shape[1] - Column.RANGES) // 2
        claims = np.array([awaits_claims(row) for row in self.table], bool)
        numbers = np.cumsum((self.table[:, Column.KIND] == RowKind.SYNC) | claims)
        for row, number in zip(self.table, numbers.tolist(), strict=True):
            if row[Column.KIND] in COMPUTING:
                compute_set, _, _ = self.sets[int(row[Column.PARAMETERS])]
                tiles = sum(lo < hi for lo, hi in self._ranges(row))
                self.record.know(compute_set, tiles, number)

    def _ranges(self, row: np.ndarray) -> Ranges:
        bounds = row[Column.RANGES :].tolist()
        return list(zip(bounds[::2], bounds[1::2], strict=True))

    def step(self, step: int, variables: list[DeviceBuffer]) -> None:
        """Runs step `step`: variables are read before it, and written once it is complete. Raises DebugError."""
        bound = list(zip((b for _, b in sorted(self.program.variables.items())), variables, strict=True))
        for buffer, variable in bound:
            self.memory[buffer].load(variable.read())
        self.memory.begin_step()
        self._hazards.sync()
        walk = Walk(self.table)
        for row in walk:
            if row[Column.KIND] == RowKind.SYNC:
                self._hazards.sync()
            elif row[Column.KIND] == RowKind.BRANCH:
                walk.branch(self._truth(self.predicates[int(row[Column.PREDICATE])]))
            else:
                if awaits_claims(row):
                    self._hazards.sync_claimed()
                self._compute(self.sets[int(row[Column.PARAMETERS])], self._ranges(row), step, walk.iterations)
        for buffer in self.program.outputs:
            self._check_whole(buffer, "an output of the program")
        for buffer, variable in bound:
            variable.write(self.memory[buffer].value())
        self.record.completed()

    def _compute(
        self, loaded: tuple[ComputeSet, Encoded, int], ranges: Ranges, step: int, iterations: list[int]
    ) -> None:
        compute_set, block, codelet = loaded
        uses = self._uses(compute_set, ranges)
        self._check_syncs(compute_set, uses)
        ring = self.distributed.get(id(compute_set))
        if ring is not None:
            (buffer,) = uses
            self._check_whole(buffer, title(compute_set))
            ring[step] = self.memory[buffer].value().reshape(ring.shape[1:])
            self.record.ran(compute_set, NOTHING, buffer.shape.bytes)
            return
        if isinstance(compute_set.work, HostCall):
            self.host.call(compute_set, compute_set.work, iterations)
            self.record.ran(compute_set, NOTHING, sum(shape.bytes for shape in compute_set.work.function.results))
            return
        if isinstance(compute_set.work, ValueCheckWork):
            self.host.check(compute_set, compute_set.work, iterations, step)
            self.record.ran(compute_set, NOTHING, 0)
            return
        if self.host.before(compute_set):
            uses = self._uses(compute_set, ranges)
        self.record.ran(compute_set, exchanged(uses.values(), self._tiles), from_host(uses.values()))
        words = [self._words(step, tile, iterations) for tile in range(self._tiles)]
        findings = Findings(compute_set, ranges, uses, self.memory.holder)
        ComputeSetRun(Tile(compute_set, block, codelet, self.aside), uses, ranges, words, findings).run()
        self.host.after(compute_set)

    def _words(self, step: int, tile: int, iterations: list[int]) -> list[int]:
        """The executor's words at the start of a worker's scratch."""
        words = [0] * (Scratch.BYTES // 8)
        words[Scratch.STEP], words[Scratch.STEPS], words[Scratch.WORKER] = step, self.steps, tile
        words[Scratch.ITERATION :] = iterations
        return words

    def _uses(self, compute_set: ComputeSet, ranges: Ranges) -> dict[Buffer, Use]:
        """The declared accesses of a compute set to each of its buffers; any tile may read constants."""
        homes = [self.memory[buffer] for buffer in touched(compute_set) if not self.aside.has(buffer)]
        uses = {home.buffer: Use(home, written=home.written()) for home in homes}
        for span in [*compute_set.reads, *(Span(buffer) for buffer in uses if buffer.kind == "constant")]:
            uses[span.buffer].reads.append(self.span_table.elements_of(span, ranges))
        for span in compute_set.writes:
            uses[span.buffer].writes.append(self.span_table.elements_of(span, ranges))
        return uses

    def _check_syncs(self, compute_set: ComputeSet, uses: dict[Buffer, Use]) -> None:
        touches = [
            TouchedParts(elements, self.address(buffer), title(compute_set), writes, compute_set.claimed)
            for buffer, use in uses.items()
            if buffer.kind != "constant"
            for spans, writes in ((use.reads, False), (use.writes, True))
            for elements in spans
        ]
        self._hazards.check(title(compute_set), touches)

    def _truth(self, predicate: Buffer) -> bool:
        """Value of a branch's predicate, which all tiles read."""
        self._check_whole(predicate, "the branch on it")
        if predicate.kind != "constant":
            elements_of = SpanElements(Span(predicate), tuple(range(self._tiles)), None)
            touch = TouchedParts(elements_of, self.address(predicate), f"the branch on {predicate.name!r}", False)
            self._hazards.check(touch.who, [touch])
        return bool(self.memory[predicate].cells[0])

    def _check_whole(self, buffer: Buffer, reader: str) -> None:
        """Raises DebugError unless all of a buffer has been written."""
        written = self.memory[buffer].written()
        if written is not None:
            missing = int(np.flatnonzero(~written)[0])
            holder = self.memory.holder(Use(self.memory[buffer]), missing)
            now = "it has not been written in this step" if holder is None else f"its address holds {holder!r} by now"
            raise DebugError(
                f"Expected all of {buffer.name!r} {buffer.shape} to be written before {reader} reads it. "
                f"Received: {position_of(buffer.shape, missing)}, but {now}."
            )
