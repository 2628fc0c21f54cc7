"""A loaded program: arena, parameter blocks, step tables; and the calls that run it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import accumulate
from typing import Any, Literal

import numpy as np

from engine.codelets.host.rows import new_feed_block, point_feed
from engine.codelets.language.build import MachineCode, Progress, make
from engine.codelets.language.encoded import Encoded
from engine.errors import InternalError, StepCountError
from engine.ir.device_operations import QueueSignature
from engine.ir.shape import Shape
from engine.machine_code.costs import costs
from engine.program.program import Buffer, ComputeSet, Mark, Program
from engine.resource_limits import check_time
from engine.runtime.bound_queues import BoundQueues
from engine.runtime.brief_call import MOST_SECONDS, BriefCall, SharedCall
from engine.runtime.buffers import DeviceBuffer, aligned_copy, aligned_zeros
from engine.runtime.build_table import TableBuilder
from engine.runtime.choice import WorkerChoice
from engine.runtime.encoded_program import EncodedProgram
from engine.runtime.executor import State, new_scratch, new_state
from engine.runtime.feed_sets import encoded_feeds, infeed_set, outfeed_set
from engine.runtime.feeds import RowFeed
from engine.runtime.host_calls import HostCalls
from engine.runtime.native_threads import codelets_of_calls
from engine.runtime.observer import Observer, RunningCall
from engine.runtime.quiet import quiet_openblas
from engine.runtime.rings import AnyRing
from engine.runtime.row_flags import RowFlags
from engine.runtime.segments import run_in_segments
from engine.runtime.threads import is_worker_count_given, worker_count
from engine.runtime.time_limit import TimeLimit
from engine.runtime.workers import begin_call, completed_steps, run_segment, run_table


@cache
def inline_work() -> float:
    """Multiply-adds and elements below which a call is not worth its threads."""
    return costs().threads / costs().multiply_add


WAKING = 0.4
"""The fraction of `inline_work` below which a call does not even wake persistent threads."""


class Executable:
    """One step of a program, run any number of times per call. Not for concurrent calls."""

    def __init__(self, program: Program | EncodedProgram, progress: Progress | None = None) -> None:
        quiet_openblas()
        given = program if isinstance(program, EncodedProgram) else _encoded(program)
        self.program = program = given.program
        self._feed_blocks = {number: new_feed_block() for number in program.feeds}
        shapes = [(number, buffer.shape) for number, buffer in sorted(program.feeds.items())]
        self._expected = [(n, s.dimensions[0] if s.rank else 1, s.dtype, s.dimensions[1:]) for n, s in shapes]
        self._infeeds = [infeed_set(b, self._feed_blocks[n]) for n, b in sorted(program.feeds.items())]
        self._outfeed_blocks = [new_feed_block() for _ in program.outputs]
        pairs = zip(program.outputs, self._outfeed_blocks, strict=True)
        self._outfeeds = [outfeed_set(b, block) for b, block in pairs if b.shape.bytes]
        self._running, self.plan = given.running, given.plan
        self._all_sets = [*self._infeeds, *self._running.compute_sets, *self._outfeeds]
        self._blocks = [*encoded_feeds(self._infeeds), *given.blocks, *encoded_feeds(self._outfeeds)]
        self._row_flags = RowFlags(self._all_sets, self._blocks, program.variables)
        self._arena = aligned_zeros(max(self.plan.arena_bytes, 64))
        self._constants: dict[Buffer, np.ndarray] = {}
        self._variables: list[DeviceBuffer] = []
        self._queues = BoundQueues(program.queues, program.call)
        self._host_calls = HostCalls(program)
        self._addresses: dict[Buffer, int] = {}
        self._codelets = self._compile(progress)
        self._offset()
        self._tables: dict[tuple[bool, int], tuple[np.ndarray, TableBuilder]] = {}
        self._scratch_bytes = max((each.scratch_bytes for each in self._blocks), default=0)
        self._workspace: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self.choice = WorkerChoice()
        self._work_estimate = given.work_estimate
        self._is_fine_grained = given.is_fine_grained
        # A program that waits for the host, or has a loop of unknown or great length, must stay interruptible.
        self._may_take_long = bool(program.queues) or any(
            region.repeats and (region.long or region.iterations is None) for region in program.regions
        )
        is_special = self._host_calls.are_any or self._row_flags.are_any or bool(program.exception_names)
        self._may_be_brief = not self._may_take_long and not is_special
        self._brief: dict[int, BriefCall | SharedCall] = {}
        shared = not self._is_fine_grained and self._may_be_brief
        self._is_prepared = False
        self._is_small = self._work_estimate < (WAKING if shared else 1.0) * inline_work()

    def _compile(self, progress: Progress | None) -> list[int]:
        called = [codelet for b in self._blocks for codelet in (b.codelet, *(c for _, c in b.calls))]
        codelets = {each: _codelet_of(each) for each in called}

        def begun(what: str, done: int, total: int) -> None:
            check_time()
            if progress is not None:
                progress(what, done, total)

        make([*codelets.values(), *codelets_of_calls()], begun)
        for block in self._blocks:
            for word, codelet in block.calls:
                block.words[word] = codelets[codelet].address
        return [codelets[block.codelet].address for block in self._blocks]

    def _offset(self) -> None:
        """Assigns addresses to all buffers but variables, and fills permanent ones with their contents."""
        base = self._arena.ctypes.data
        for buffer, offset in self.plan.offsets.items():
            self._addresses[buffer] = base + offset
            if buffer.value is not None:
                raw = np.ascontiguousarray(buffer.value).view(np.uint8).reshape(-1)
                self._arena[offset : offset + raw.size] = raw
        for block in self._blocks:
            for relocation in block.relocations:
                buffer = relocation.address.buffer
                if buffer.kind == "constant" and buffer not in self._constants:
                    self._constants[buffer] = aligned_copy(buffer.value)
                    self._addresses[buffer] = self._constants[buffer].ctypes.data
            self._relocate(block, "arena", "feed", "constant")

        for mark in self.program.marks:
            if mark.predicate is not None and mark.predicate.kind == "constant":
                self._constants[mark.predicate] = aligned_copy(mark.predicate.value)
                self._addresses[mark.predicate] = self._constants[mark.predicate].ctypes.data

    def _relocate(self, block: Encoded, *kinds: str) -> None:
        for relocation in block.relocations:
            address = relocation.address
            if address.buffer.kind in kinds:
                block.words[relocation.word] = self._addresses[address.buffer] + address.offset

    def _bind(self, variables: list[DeviceBuffer]) -> None:
        """Relocates the program to its variables, unless the last call had the same ones."""
        self._relocate_to(variables)
        if not self._is_prepared:
            self._prepare()
        self._row_flags.begin(variables)

    def _prepare(self) -> None:
        """Runs the compute sets that run once: now, as a program that is compiled ahead of time may never be called."""
        numbers = [k for k, each in enumerate(self._all_sets) if each.once]
        if numbers:
            table, _kept = self._table_of(numbers, [], 1)
            run_table(table, 1, 1, *self._workspace_for(1), inline=True)
        self._is_prepared = True

    def _relocate_to(self, variables: list[DeviceBuffer]) -> None:
        numbers = sorted(self.program.variables)
        if len(numbers) != len(variables):
            raise InternalError(f"Expected {len(numbers)} variables. Received: {len(variables)}.")
        if variables == self._variables:
            return
        self._variables = []  # until all are bound: Ctrl-C may come between
        self._tables.clear()
        self._brief.clear()
        for number, variable in zip(numbers, variables, strict=True):
            buffer = self.program.variables[number]
            if buffer.shape != variable.shape:
                raise InternalError(f"Expected a variable of {buffer.shape}. Received: {variable.shape}.")
            self._addresses[buffer] = variable.address
        for block in self._blocks:
            self._relocate(block, "variable")
        self._variables = list(variables)

    def _bind_queues(self, queues: Mapping[str, AnyRing]) -> None:
        addresses = self._queues.bind(queues)
        if addresses:
            self._addresses |= addresses
            for block in self._blocks:
                self._relocate(block, "queue")
            self._tables.clear()
        self._queues.note_bound()

    @property
    def queues(self) -> dict[str, QueueSignature]:
        """The queues of the program by name: direction, and the shapes of an element's leaves."""
        return {name: queue.signature for name, queue in self.program.queues.items()}

    @property
    def is_brief(self) -> bool:
        """Whether a call of one step is short and runs on the calling thread alone."""
        return self._may_be_brief and self._is_small

    def _location(self, buffer: Buffer) -> tuple[int, int]:
        address = self._addresses[buffer]
        return address, address + buffer.shape.bytes

    def _table(self, all_outputs: bool, workers: int) -> np.ndarray:
        key = (all_outputs, workers)
        if key not in self._tables:
            sets = self._all_sets if all_outputs else [*self._infeeds, *self._running.compute_sets]
            self._tables[key] = self._built_table(sets, self._marks(), workers)
        table, builder = self._tables[key]
        builder.claims[:] = 0
        return table

    def _built_table(
        self, sets: Sequence[ComputeSet], marks: Sequence[Mark], workers: int, first: int = 0
    ) -> tuple[np.ndarray, TableBuilder]:
        """Builds the table of `sets`, from number `first` of all sets on, without those that run once; returns its
        builder, too."""
        numbers = [first + k for k, each in enumerate(sets) if not each.once]
        if len(numbers) < len(sets):
            before = [0, *accumulate(each.once for each in sets)]
            marks = [replace(mark, position=mark.position - before[mark.position]) for mark in marks]
        return self._table_of(numbers, marks, workers)

    def _table_of(self, numbers: Sequence[int], marks: Sequence[Mark], workers: int) -> tuple[np.ndarray, TableBuilder]:
        work = [(self._codelets[k], self._blocks[k].words.ctypes.data) for k in numbers]
        builder = TableBuilder([self._all_sets[k] for k in numbers], work, marks, workers, self._location)
        return builder.build(), builder

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
        """Runs `steps` steps; variables are updated in place.

        Returns the results that update no variable: of the last step, or of all steps with a leading [steps], which are
        fewer if the observer ended the call. An observer follows the call from another thread, and needs the outputs of
        all steps. `queues` has a ring for each of the program's queues; elements that a call does not take stay for the
        next. Raises StepCountError, leaving the variables alone, when there is no step or a feed is too short;
        ConfigurationError for rings that do not fit; the error of a closed ring, a host function or a check of values,
        whose step counts as not begun; CallTimeout at the end of the time of `limit`, with variables as after the last
        whole step. A loop that may take long is then left between two iterations.
        """
        self._check(steps, feeds)
        brief = self.brief_call(variables) if steps == 1 and observer is None and not queues else None
        if brief is not None:
            results = brief.run_rows(feeds, [rows for _, rows, *_ in self._expected])
            return results if outputs == "last" else [result[None] for result in results]
        self._host_calls.check_idle()
        self._bind(variables)
        self._bind_queues(queues or {})
        held = [self._point(number, feed) for number, feed in zip(sorted(self.program.feeds), feeds, strict=True)]
        rings = (
            [np.zeros((steps, *s.dimensions), s.dtype) for s in self.program.output_shapes] if outputs == "all" else []
        )
        for block, ring in zip(self._outfeed_blocks, rings, strict=False):
            point_feed(block, ring)
        is_small = self._is_small if steps == 1 else steps * self._work_estimate < inline_work()
        small = is_small and not self._may_take_long
        alone = small or (self._is_fine_grained and not is_worker_count_given())
        most = 1 if alone else worker_count()
        _, state = self._workspace_for(most)
        small = small and not self._host_calls.run_c
        begin_call(steps, state, observer.held if observer is not None else 0)
        self._queues.begin(state)
        try:
            self._host_calls.begin()
            if observer is None:
                self._run_workers(most, steps, rings, state, small, limit)
            else:
                observer.begin(RunningCall(state, rings))
                try:
                    self._run_workers(most, steps, rings, state, small, limit)
                finally:
                    observer.end(completed_steps(state))
                rings = [ring[: completed_steps(state)] for ring in rings]
        finally:
            self._host_calls.end()
            self._queues.end()
        if completed_steps(state) < steps:
            self._host_calls.raise_failure(completed_steps(state), steps)
            self._queues.raise_if_ended()
        del held
        return rings if outputs == "all" else [self._output(k).copy() for k in range(len(self.program.outputs))]

    def brief_call(self, variables: list[DeviceBuffer]) -> BriefCall | SharedCall | None:
        """Returns a prepared call of one step without queues, or None if an ordinary call is better now.

        It is valid until the next use of this executable with other variables.
        """
        workers = 1 if self._is_small else self._workers_of_brief_call()
        if not workers or not self._may_be_brief:
            return None
        if workers not in self._brief or variables != self._variables:
            self._bind(variables)
            self._bind_queues({})
            self._brief[workers] = self._prepared(workers)
        return self._brief[workers]

    def _workers_of_brief_call(self) -> int:
        """Number of workers of a brief call; 0 for calls that are measured, are long, or start their own threads."""
        if self._is_fine_grained or self.choice.step_seconds > MOST_SECONDS:
            return 0
        most = worker_count()
        if is_worker_count_given():
            return most
        workers = self.choice.workers(most, time.perf_counter())
        return workers if workers == 1 or self.choice.is_calm else 0

    def _prepared(self, workers: int) -> BriefCall | SharedCall:
        outputs = [self._output(k) for k in range(len(self.program.outputs))]
        scratch, checks = self._workspace_for(workers)[0], (self._queues.call_block, self._host_calls.checks)
        if workers > 1:
            made = self._built_table([*self._infeeds, *self._running.compute_sets], self._marks(), workers)
            blocks = [self._feed_blocks[number] for number in sorted(self.program.feeds)]
            return SharedCall(*made, scratch, blocks, outputs, self.choice, *checks)
        made = self._built_table(self._running.compute_sets, self._running.marks, 1, len(self._infeeds))
        feeds = [self._value(buffer, buffer.shape) for _, buffer in sorted(self.program.feeds.items())]
        return BriefCall(*made, scratch, feeds, outputs, None if self._is_small else self.choice, *checks)

    def _marks(self) -> list[Mark]:
        """Marks of the program with its infeeds before it."""
        return [replace(mark, position=mark.position + len(self._infeeds)) for mark in self._running.marks]

    def _run_workers(
        self, most: int, steps: int, rings: list[np.ndarray], state: np.ndarray, inline: bool, limit: TimeLimit | None
    ) -> None:
        """Runs the steps of a call that has begun, with at most `most` workers: fewer while the cores are contended."""
        scratch = self._workspace_for(most)[0]
        if inline:
            run_segment(self._table(bool(rings), most), steps, 0, most, scratch, state, inline)
            return
        run_in_segments(
            *(self.choice, most, steps),
            table=lambda workers: self._table(bool(rings), workers),
            scratch=lambda workers: scratch[:workers],
            state=state,
            is_given=most == 1 or is_worker_count_given(),
            may_be_inline=not self._may_take_long and not state[State.HELD],
            is_inline=self._host_calls.take_the_caller and not state[State.HELD],
            interrupt=self._host_calls.interrupt,
            limit=limit,
        )

    def _workspace_for(self, workers: int) -> tuple[np.ndarray, np.ndarray]:
        """Scratch areas and a state block for `workers` workers or fewer."""
        if workers not in self._workspace:
            self._workspace[workers] = new_scratch(workers, self._scratch_bytes), new_state(workers)
        return self._workspace[workers]

    def _check(self, steps: int, feeds: list[RowFeed]) -> None:
        if steps < 1:
            raise StepCountError(f"Expected at least 1 step. Received: {steps}.")
        for (number, rows, dtype, dimensions), feed in zip(self._expected, feeds, strict=True):
            feed.check_steps(number, steps, rows)
            if feed.array.dtype != dtype or feed.array.shape[1:] != dimensions:
                raise InternalError(
                    f"Expected rows of {self.program.feeds[number].shape} for parameter {number}. "
                    f"Received: {feed.array.dtype}{list(feed.array.shape)}."
                )
            feed.check_rows(number)

    def _point(self, number: int, feed: RowFeed) -> RowFeed:
        point_feed(self._feed_blocks[number], feed.array, feed.rows)
        return feed

    def _output(self, number: int) -> np.ndarray:
        """An output in the arena, or in the variable that is also an output."""
        buffer, shape = self.program.outputs[number], self.program.output_shapes[number]
        if buffer.kind == "variable":
            position = sorted(self.program.variables).index(buffer.index)
            return self._variables[position].value.reshape(shape.dimensions)
        if buffer.kind == "constant":
            assert buffer.value is not None
            return np.array(buffer.value, shape.dtype).reshape(shape.dimensions)
        return self._value(buffer, shape)

    def _value(self, buffer: Buffer, shape: Shape) -> np.ndarray:
        """The array of a shape in a buffer in the arena."""
        start = self.plan.offsets[buffer]
        return self._arena[start : start + shape.bytes].view(shape.dtype).reshape(shape.dimensions)


def _encoded(program: Program) -> EncodedProgram:
    from engine.runtime.encode import encode_program

    return encode_program(program)


def _codelet_of(codelet: Any) -> MachineCode:
    if isinstance(codelet, MachineCode):
        return codelet
    from engine.emit.library import generated_codelet

    return generated_codelet(codelet)
