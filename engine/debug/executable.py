"""The debug executor: executes the fast executor's step table row by row, with a separate memory for each tile."""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator
from functools import cache, cached_property

import numpy as np

from engine.codelets.language.encoded import Encoded
from engine.debug.aside import Aside
from engine.debug.cells import position_of
from engine.debug.compute_set_run import ComputeSetRun
from engine.debug.control_flow import Walk
from engine.debug.exchange import exchanged, from_host
from engine.debug.findings import Findings, title
from engine.debug.hazards import Hazards, TouchedParts
from engine.debug.host import HostSide
from engine.debug.memory import TileHomes
from engine.debug.record import DebugRecord
from engine.debug.span_elements import SpanElements, elements_of
from engine.debug.tile import Tile, touched
from engine.debug.uses import Use
from engine.errors import ConfigurationError, DebugError
from engine.machine_code.abi import Scratch
from engine.program.program import Buffer, ComputeSet, Program, Span
from engine.program.syncs import Ranges
from engine.program.work.custom_calls import HostCall, ValueCheckWork
from engine.runtime.brief_call import BriefCall
from engine.runtime.buffers import DeviceBuffer
from engine.runtime.checked import CheckedExecutable
from engine.runtime.executable import Progress
from engine.runtime.executor import COMPUTING, Column, RowKind, State
from engine.runtime.time_limit import TimeLimit

TILES = 4
"""Default number of tiles: enough for races, and quick."""
NAP_SECONDS = 0.0002
NOTHING = np.zeros((), np.int64)


class DebugExecutable(CheckedExecutable):
    """One step of a program, run with the same results as by Executable, bit for bit, and with all accesses checked.

    Units are distributed over `tiles` tiles as Executable distributes them over workers. The executable takes over the
    program's parameter blocks, as any executable does. It is slow, for tests and lessons. `record` has the supersteps
    that have run. Raises ConfigurationError for less than one tile.
    """

    def __init__(self, program: Program, progress: Progress | None = None, *, tiles: int = TILES) -> None:
        if tiles < 1:
            raise ConfigurationError(f"Expected at least 1 tile. Received: {tiles}. Nearest legal value: 1.")
        super().__init__(program, progress)
        self.tiles, self.record = tiles, DebugRecord(program.name, tiles)
        self._predicates = [mark.predicate for mark in self._running.marks if mark.predicate is not None]
        self._elements_of, self._hazards = cache(elements_of), Hazards()
        record = self._running.exceptions
        self._aside = Aside(record, None if record is None else self._constants.get(record.buffer))
        self._sums = [_sum_of_tables(block) for block in self._blocks]

    @cached_property
    def _memory(self) -> TileHomes:
        """The homes of all buffers, which only programs that run need."""
        return TileHomes(self._buffers(), self.plan, self._arena, self.tiles)

    def _buffers(self) -> Iterator[Buffer]:
        for compute_set in self._all_sets:
            yield from touched(compute_set)
        yield from self.program.variables.values()
        yield from self.program.outputs
        yield from self._predicates
        for queue in self.program.queues.values():
            yield from (queue.control, *queue.leaves)
        yield from (self.program.call,) if self.program.call is not None else ()

    def brief_call(self, variables: list[DeviceBuffer]) -> BriefCall | None:
        """Returns None, as all calls are checked."""
        return None

    def _run_workers(
        self, most: int, steps: int, rings: list[np.ndarray], state: np.ndarray, inline: bool, limit: TimeLimit | None
    ) -> None:
        """Runs the steps of a call that has begun; `limit` ends no step that has begun.

        Raises DebugError, with the variables as they were after the last whole step, for a compute set that accesses
        undeclared elements, reads unwritten ones, or races with another.
        """
        self._steps, self._host = steps, HostSide(self.program, self._queues.rings, self._memory)
        distributed = [ring for ring in rings if ring[0].nbytes]
        self._distributed = {id(each): ring for each, ring in zip(self._outfeeds, distributed, strict=False)}
        loaded = zip(self._all_sets, self._blocks, self._codelets, strict=True)
        self._loaded = {each[1].words.ctypes.data: each for each in loaded}
        table = self._table(bool(rings), self.tiles)
        self._note_supersteps(table)
        for step in range(steps):
            if not _may_begin(step, state):
                break
            if limit is not None and limit.left() == 0:
                raise limit.error(f"one in step {step + 1} of {steps}")
            self._step(step, table)
            state[State.COMPLETED] = step + 1
        self._check_tables()

    def _note_supersteps(self, table: np.ndarray) -> None:
        """Registers the table's compute sets in the record."""
        claims = np.array([_awaits_claims(row) for row in table], bool)
        numbers = np.cumsum((table[:, Column.KIND] == RowKind.SYNC) | claims)
        for row, number in zip(table, numbers.tolist(), strict=True):
            if row[Column.KIND] in COMPUTING:
                compute_set, _, _ = self._loaded[int(row[Column.PARAMETERS])]
                self.record.know(compute_set, sum(lo < hi for lo, hi in _ranges(row)), number)

    def _step(self, step: int, table: np.ndarray) -> None:
        """Runs step `step`: variables are read before it, and written once it is complete. Raises DebugError."""
        bound = list(zip((b for _, b in sorted(self.program.variables.items())), self._variables, strict=True))
        predicates = {self._addresses[each]: each for each in self._predicates}
        for buffer, variable in bound:
            self._memory[buffer].load(variable.read())
        self._memory.begin_step()
        self._hazards.sync()
        walk = Walk(table)
        for row in walk:
            if row[Column.KIND] == RowKind.SYNC:
                self._hazards.sync()
            elif row[Column.KIND] == RowKind.BRANCH:
                walk.branch(self._truth(predicates[int(row[Column.PREDICATE])]))
            else:
                if _awaits_claims(row):
                    self._hazards.sync_claimed()
                self._compute(*self._loaded[int(row[Column.PARAMETERS])], _ranges(row), step, walk.iterations)
        for buffer in self.program.outputs:
            self._check_whole(buffer, "an output of the program")
        for buffer, variable in bound:
            variable.write(self._memory[buffer].value())
        self.record.completed()

    def _compute(
        self, each: ComputeSet, block: Encoded, codelet: int, ranges: Ranges, step: int, iterations: list[int]
    ) -> None:
        uses = self._uses(each, ranges)
        self._check_syncs(each, uses)
        ring = self._distributed.get(id(each))
        if ring is not None:
            (buffer,) = uses
            self._check_whole(buffer, title(each))
            ring[step] = self._memory[buffer].value().reshape(ring.shape[1:])
            self.record.ran(each, NOTHING, buffer.shape.bytes)
        elif isinstance(each.work, HostCall):
            self._host.call(each, each.work, iterations)
            self.record.ran(each, NOTHING, sum(shape.bytes for shape in each.work.function.results))
        elif isinstance(each.work, ValueCheckWork):
            self._host.check(each, each.work, iterations, step)
            self.record.ran(each, NOTHING, 0)
        else:
            if self._host.before(each):
                uses = self._uses(each, ranges)
            self.record.ran(each, exchanged(uses.values(), self.tiles), from_host(uses.values()))
            words = [self._words(step, tile, iterations) for tile in range(self.tiles)]
            findings = Findings(each, ranges, uses, self._memory.holder)
            ComputeSetRun(Tile(each, block, codelet, self._aside), uses, ranges, words, findings).run()
            self._host.after(each)

    def _words(self, step: int, tile: int, iterations: list[int]) -> list[int]:
        """The executor's words at the start of a worker's scratch."""
        words = [0] * (Scratch.BYTES // 8)
        words[Scratch.STEP], words[Scratch.STEPS], words[Scratch.WORKER] = step, self._steps, tile
        words[Scratch.ITERATION :] = iterations
        return words

    def _uses(self, compute_set: ComputeSet, ranges: Ranges) -> dict[Buffer, Use]:
        """The declared accesses of a compute set to each of its buffers; any tile may read constants."""
        homes = [self._memory[buffer] for buffer in touched(compute_set) if not self._aside.has(buffer)]
        uses = {home.buffer: Use(home, written=home.written()) for home in homes}
        for span in [*compute_set.reads, *(Span(buffer) for buffer in uses if buffer.kind == "constant")]:
            uses[span.buffer].reads.append(self._elements_of(span, tuple(ranges)))
        for span in compute_set.writes:
            uses[span.buffer].writes.append(self._elements_of(span, tuple(ranges)))
        return uses

    def _check_syncs(self, compute_set: ComputeSet, uses: dict[Buffer, Use]) -> None:
        touches = [
            TouchedParts(elements, self._addresses[buffer], title(compute_set), writes, compute_set.claimed)
            for buffer, use in uses.items()
            if buffer.kind != "constant"
            for spans, writes in ((use.reads, False), (use.writes, True))
            for elements in spans
        ]
        self._hazards.check(touches)

    def _truth(self, predicate: Buffer) -> bool:
        """Value of a branch's predicate, which all tiles read."""
        self._check_whole(predicate, "the branch on it")
        if predicate.kind != "constant":
            elements = SpanElements(Span(predicate), tuple(range(self.tiles)), None)
            who = f"the branch on {predicate.name!r}"
            self._hazards.check([TouchedParts(elements, self._addresses[predicate], who, False)])
        return bool(self._memory[predicate].cells[0])

    def _check_whole(self, buffer: Buffer, reader: str) -> None:
        """Raises DebugError unless all of a buffer has been written."""
        written = self._memory[buffer].written()
        if written is not None:
            missing = int(np.flatnonzero(~written)[0])
            holder = self._memory.holder(Use(self._memory[buffer]), missing)
            now = "it has not been written in this step" if holder is None else f"its address holds {holder!r} by now"
            raise DebugError(
                f"Expected all of {buffer.name!r} {buffer.shape} to be written before {reader} reads it. "
                f"Received: {position_of(buffer.shape, missing)}, but {now}."
            )

    def _check_tables(self) -> None:
        """Raises DebugError if a table that blocks point to has changed since construction."""
        for compute_set, block, before in zip(self._all_sets, self._blocks, self._sums, strict=True):
            if _sum_of_tables(block) != before:
                raise DebugError(
                    f"Expected the tables of {title(compute_set)} to stay as they are. Received: a write into one. "
                    f"Look for a wrong address in its parameters, or in those of a compute set beside it."
                )


def _may_begin(step: int, state: np.ndarray) -> bool:
    """Whether a step may begin; waits while the call's observer has not taken the results of too many steps."""
    held = state[State.HELD]
    if held and step - state[State.TAKEN] >= held:
        state[State.WAITS] += 1
    while held and step - state[State.TAKEN] >= held and not state[State.STOP]:
        time.sleep(NAP_SECONDS)
    return not state[State.STOP]


def _ranges(row: np.ndarray) -> Ranges:
    """The units of each tile at a row that computes."""
    bounds = row[Column.RANGES :].tolist()
    return list(zip(bounds[::2], bounds[1::2], strict=True))


def _awaits_claims(row: np.ndarray) -> bool:
    """Whether a worker waits at a row for the claimed compute sets before it."""
    return bool(row[Column.KIND] == RowKind.CLAIMED and row[Column.PREDICATE] < row[Column.TARGET])


def _sum_of_tables(block: Encoded) -> int:
    """A checksum of the tables to which a block points."""
    found = 0
    for _, table in block.tables:
        found = zlib.crc32(np.ascontiguousarray(table).view(np.uint8).reshape(-1).data, found)
    return found
