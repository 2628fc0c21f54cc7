"""The debug executor: executes the fast executor's step table row by row, with a separate memory for each tile."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

import numpy as np

from engine.codelets.language.encoded import Encoded
from engine.debug.aside import Aside
from engine.debug.control_flow import Follower
from engine.debug.findings import title
from engine.debug.host import HostSide
from engine.debug.memory import TileHomes
from engine.debug.record import DebugRecord
from engine.debug.span_elements import SpanTable
from engine.debug.stepping import Stepper
from engine.debug.tile import touched
from engine.errors import ConfigurationError, DebugError
from engine.program.program import Buffer, ComputeSet, Program
from engine.runtime.brief_call import BriefCall
from engine.runtime.buffers import DeviceBuffer
from engine.runtime.checked import CheckedExecutable
from engine.runtime.executable import Executable
from engine.runtime.feeds import RowFeed
from engine.runtime.observer import Observer
from engine.runtime.rings import AnyRing
from engine.runtime.time_limit import TimeLimit


class Tables:
    """Checksums of the tables of some compute sets, to which their encoded blocks point."""

    def __init__(self, compute_sets: Sequence[ComputeSet], blocks: Sequence[Encoded]) -> None:
        pairs = zip(compute_sets, blocks, strict=True)
        self._held = [(each, block, _sum(block)) for each, block in pairs if block.tables]

    def check(self) -> None:
        """Raises DebugError if a table has changed since construction."""
        for compute_set, block, before in self._held:
            if _sum(block) != before:
                raise DebugError(
                    f"Expected the tables of {title(compute_set)} to stay as they are. Received: a write into one. "
                    f"Look for a wrong address in its parameters, or in those of a compute set beside it."
                )


def _sum(block: Encoded) -> int:
    found = 0
    for _, table in block.tables:
        found = zlib.crc32(np.ascontiguousarray(table).view(np.uint8).reshape(-1).data, found)
    return found


Progress = Callable[[str, int, int], None]
TILES = 4
"""Default number of tiles: enough for races, and quick."""


class DebugExecutable(Executable):
    """One step of a program, run with the same results as by Executable, bit for bit, and with all accesses checked.

    Units are distributed over `tiles` tiles as Executable distributes them over workers. The executable takes over the
    program's parameter blocks, as any executable does. It is slow, for tests and lessons. `record` has the supersteps
    that have run. Raises ConfigurationError for less than one tile.
    """

    def __init__(self, program: Program, progress: Progress | None = None, *, tiles: int = TILES) -> None:
        super().__init__(program, progress)
        self._span_elements = SpanTable()
        self._memory: TileHomes | None = None
        self._kept = Tables(self._all_sets, self._blocks)
        self._distribute(tiles)

    def _distribute(self, tiles: int) -> None:
        if tiles < 1:
            raise ConfigurationError(f"Expected at least 1 tile. Received: {tiles}. Nearest legal value: 1.")
        self.tiles = tiles
        self.record = DebugRecord(self.program.name, tiles)

    def brief_call(self, variables: list[DeviceBuffer]) -> BriefCall | None:
        """Returns None, as all calls are checked."""
        return None

    def run(
        self,
        steps: int,
        feeds: list[RowFeed],
        variables: list[DeviceBuffer],
        outputs: Literal["last", "all"] = "last",
        observer: Observer | None = None,
        queues: Mapping[str, AnyRing] | None = None,
        limit: TimeLimit | None = None,
    ) -> list[np.ndarray]:
        """Runs `steps` steps as `Executable.run` does, and raises its errors; `limit` ends no step that has begun.

        Raises DebugError, with the variables as they were after the last whole step, for a compute set that accesses
        undeclared elements, reads unwritten ones, or races with another.
        """
        self._check(steps, feeds)
        self._bind(variables)
        self._bind_queues(queues or {})
        held = [self._point(number, feed) for number, feed in zip(sorted(self.program.feeds), feeds, strict=True)]
        shapes = self.program.output_shapes if outputs == "all" else []
        rings = [np.zeros((steps, *shape.dimensions), shape.dtype) for shape in shapes]
        stepper = self._stepper(steps, rings, queues or {})
        _, state = self._workspace_for(self.tiles)
        state[:] = 0
        follower = Follower(observer, state, rings)
        self._queues.begin(state)
        completed = 0
        try:
            while completed < steps and follower.goes_on(completed):
                if limit is not None and limit.left() == 0:
                    raise limit.error(f"one in step {completed + 1} of {steps}")
                stepper.step(completed, variables)
                completed += 1
                follower.completed(completed)
            self._kept.check()
        finally:
            self._queues.end()
            follower.end(completed)
        del held
        rings = [ring[:completed] for ring in rings]
        return rings if outputs == "all" else [self._output(k).copy() for k in range(len(self.program.outputs))]

    def _stepper(self, steps: int, rings: list[np.ndarray], queues: Mapping[str, AnyRing]) -> Stepper:
        if self._memory is None:
            self._memory = TileHomes(self._buffers(), self.plan, self._arena, self.tiles)
        distributed = [ring for ring in rings if ring[0].nbytes]
        predicates = [mark.predicate for mark in self._running.marks if mark.predicate is not None]
        return Stepper(
            self.program,
            self._table(bool(rings), self.tiles),
            steps,
            {
                block.words.ctypes.data: (each, block, codelet)
                for each, block, codelet in zip(self._all_sets, self._blocks, self._codelets, strict=True)
            },
            {self._addresses[predicate]: predicate for predicate in predicates},
            lambda buffer: self._location(buffer)[0],
            self._memory,
            HostSide(self.program, queues, self._memory),
            {id(each): ring for each, ring in zip(self._outfeeds, distributed, strict=False)},
            self._span_elements,
            self._aside(),
            self.record,
        )

    def _aside(self) -> Aside:
        record = self.program.exceptions
        return Aside(record, None if record is None else self._constants.get(record.buffer))

    def _buffers(self) -> Iterator[Buffer]:
        for compute_set in self._all_sets:
            yield from touched(compute_set)
        yield from self.program.variables.values()
        yield from self.program.outputs
        yield from (mark.predicate for mark in self._running.marks if mark.predicate is not None)
        for queue in self.program.queues.values():
            yield from (queue.control, *queue.leaves)
        yield from (self.program.call,) if self.program.call is not None else ()


class CheckedDebugExecutable(CheckedExecutable, DebugExecutable):
    """A debug executable for a program that detects floating-point exceptions."""

    def __init__(self, program: Program, progress: Progress | None = None, *, tiles: int = TILES) -> None:
        super().__init__(program, progress)
        self._distribute(tiles)


def debug_executable(program: Program, progress: Progress | None = None, *, tiles: int = TILES) -> DebugExecutable:
    """The debug executable of a program. Raises ConfigurationError for less than one tile."""
    kind = DebugExecutable if program.exceptions is None else CheckedDebugExecutable
    return kind(program, progress, tiles=tiles)
