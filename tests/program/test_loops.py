"""Plans of programs with loops and branches, checked along the path that a step really takes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from engine.compile import build_program
from engine.host.passes.pass_list import HOST_PASSES
from engine.ir import Module
from engine.program.memory import plan_memory
from engine.program.program import Buffer, ComputeSet, Mark, Program
from engine.program.run_passes import run_passes
from engine.program.syncs import free_marks
from engine.runtime.executable import Executable
from engine.runtime.executor import Column, RowKind
from tests.engine.running import arguments_for, buffers
from tests.program.loops import LOOPS, choices
from tests.program.machine import GARBAGE, Machine
from tests.program.test_syncs import Races, places


class ArenaMachine(Machine):
    """A machine with buffers at the addresses of the memory plan, full of garbage before the step."""

    def __init__(self, program: Program, arguments: dict[int, np.ndarray]) -> None:
        self.plan = plan_memory(program)
        self.arena = np.full(self.plan.arena_bytes + 64, GARBAGE, np.uint8)
        super().__init__(program, arguments)

    def _place(self, buffer: Buffer, value: np.ndarray | None) -> None:
        super()._place(buffer, value)
        if buffer in self.plan.offsets:
            start = self.plan.offsets[buffer]
            held = self.arena[start : start + max(64, buffer.shape.bytes)]
            if value is not None or buffer.permanent:
                held[: buffer.shape.bytes] = self.memory[buffer][: buffer.shape.bytes]
            self.memory[buffer] = held


def program_and_arguments(name: str) -> Iterator[tuple[Program, Program, list[np.ndarray]]]:
    """Two equal programs, as each machine writes its addresses into its program."""
    module: Module = LOOPS[name]()
    roles = ["variable"] * len(module.entry.parameters)
    for arguments in choices(module, arguments_for(module)):
        yield build_program(module, roles, {}), build_program(module, roles, {}), arguments


@pytest.mark.sample(9)
@pytest.mark.parametrize("name", LOOPS)
def test_nothing_is_overwritten_before_its_last_reader(name: str) -> None:
    """All that a step reads is the same in the arena as in separate memory for each buffer."""
    for program, twin, arguments in program_and_arguments(name):
        program, twin = run_passes(program, HOST_PASSES), run_passes(twin, HOST_PASSES)
        apart, together = Machine(program, dict(enumerate(arguments))), ArenaMachine(twin, dict(enumerate(arguments)))
        for event, same in zip(apart.trace(), together.trace(), strict=True):
            if isinstance(event, Mark):
                assert isinstance(same, Mark)
                assert (event.kind, event.label) == (same.kind, same.label)
                if event.predicate is not None and same.predicate is not None:
                    assert apart.truth(event.predicate) == together.truth(same.predicate)
                continue
            assert event == same
            one, other = apart.program.compute_sets[event], together.program.compute_sets[event]
            for mine, yours in zip(one.reads, other.reads, strict=True):
                size = mine.buffer.shape.bytes
                expected, found = apart.memory[mine.buffer][:size], together.memory[yours.buffer][:size]
                lost = np.flatnonzero((found != expected) & (expected != GARBAGE))
                assert not lost.size, f"{one.name} reads {mine.buffer.name}, overwritten by another"
            apart.run_units(one, 0, one.units)
            together.run_units(other, 0, other.units)
        for result, value in zip(together.outputs(), apart.outputs(), strict=True):
            np.testing.assert_array_equal(result, value)


class RacesWithTests(Races):
    """Races that also see workers test predicates."""

    def test(self, predicate: Buffer) -> bool:
        """Lets all workers read a predicate; returns whether another worker has written there."""
        if predicate.kind == "constant":
            return False
        start, stop = self.place(predicate)
        others = np.array([np.delete(self.written, w, 0).any(0) for w in range(self.workers)])
        self.read[:, start:stop] = True
        return bool(others[:, start:stop].any())


@pytest.mark.sample(18)
@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("name", LOOPS)
def test_no_two_workers_conflict_on_any_path(name: str, workers: int) -> None:
    for program, twin, arguments in program_and_arguments(name):
        executable = Executable(program)
        executable._bind(buffers(arguments))
        follow(
            executable._table(False, workers), executable._running, run_passes(twin, HOST_PASSES), arguments, workers
        )


def follow(table: np.ndarray, program: Program, twin: Program, arguments: list[np.ndarray], workers: int) -> None:
    """Follows the rows of a step as the executor does; a separate machine computes the values of branches."""
    machine = Machine(twin, dict(enumerate(arguments)))
    twin = machine.program
    place, size = places(program)
    races = RacesWithTests(workers, size, place)
    numbers = np.cumsum(table[:, Column.KIND] == RowKind.COMPUTE) - 1
    tested = [m for m in program.marks if m.kind == "branch" and m.known is None]
    branches = np.cumsum(table[:, Column.KIND] == RowKind.BRANCH) - 1
    twins = [m for m in twin.marks if m.kind == "branch" and m.known is None]
    known = [m for m in program.marks if m.known is not None]
    knowing = np.cumsum(table[:, Column.KIND] == RowKind.ITERATION) - 1
    repeats = [m for m in program.marks if m.kind == "repeat"]
    repeated = np.cumsum(table[:, Column.KIND] == RowKind.REPEAT) - 1
    row = iterations = 0
    while row < len(table):
        kind = table[row, Column.KIND]
        iterations += 1
        assert iterations < 100_000
        if kind == RowKind.COMPUTE:
            compute_set: ComputeSet = program.compute_sets[numbers[row]]
            assert not races.meet(compute_set), compute_set.name
            other = twin.compute_sets[numbers[row]]
            machine.run_units(other, 0, other.units)
        elif kind == RowKind.SYNC:
            races.sync()
        elif kind == RowKind.JUMP:
            row = table[row, Column.TARGET]
            continue
        elif kind == RowKind.REPEAT:
            if machine.is_followed(repeats[repeated[row]]):
                row = table[row, Column.TARGET]
                continue
        elif kind == RowKind.ITERATION:
            if machine.is_followed(known[knowing[row]]):
                row = table[row, Column.TARGET]
                continue
        else:
            mark, same = tested[branches[row]], twins[branches[row]]
            assert mark.predicate is not None and same.predicate is not None
            assert not races.test(mark.predicate), mark
            if machine.truth(same.predicate) == bool(table[row, Column.TRUTH]):
                row = table[row, Column.TARGET]
                continue
        row += 1


@pytest.mark.sample(9)
@pytest.mark.parametrize("name", LOOPS)
def test_workers_synchronise_between_two_jumps_or_branches(name: str) -> None:
    """No worker may begin another iteration, or pass a second branch, while another is still before the first."""
    for program, _, arguments in program_and_arguments(name):
        executable = Executable(program)
        executable._bind(buffers(arguments))
        kinds = executable._table(False, 2)[:, Column.KIND].tolist()
        marks = executable._running.marks
        free = free_marks(marks)
        jumps = iter(mark for mark in marks if mark.kind in ("jump", "leave"))
        for before, kind in zip(kinds, kinds[1:], strict=False):
            decided_per_iteration = kind == RowKind.JUMP and next(jumps) in free
            assert decided_per_iteration or kind not in (RowKind.BRANCH, RowKind.JUMP) or before == RowKind.SYNC
        break
