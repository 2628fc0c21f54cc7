"""Loops and branches on the engine agree with the definitions, for any number of workers, in poisoned memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.compile import build_program
from engine.evaluate import evaluate
from engine.host.passes.transposed_weights import transpose_weights
from engine.ir import Module
from engine.runtime.brief_call import BriefCall, SharedCall
from engine.runtime.buffers import DeviceBuffer
from engine.runtime.executable import Executable
from engine.runtime.executor import Column, RowKind
from tests.engine.running import arguments_for, assert_near, buffers, check, fast, slow
from tests.program.loops import LOOPS, choices, nested, until_small
from tests.program.test_memory import poison


def names_of(module: Module) -> list[str]:
    program = build_program(module, ["variable"] * len(module.entry.parameters), {})
    return [s.name for s in program.compute_sets]


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", LOOPS)
def test_as_the_definitions_say(name: str) -> None:
    module = LOOPS[name]()
    for arguments in choices(module, arguments_for(module)):
        if not module.aliases:
            check(module, arguments, tolerance=1e-4)
            continue
        (outputs, after), (expected, later) = fast(module, arguments), slow(module, arguments)
        for one, other in zip([*outputs, *after], [*expected, *later], strict=True):
            assert_near(one, other, 1e-4)


@pytest.fixture
def workers_that_run(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Notes the number of workers of each call, and treats no call as too small for its threads."""
    ran: list[int] = []
    run_workers, brief_call = Executable._run_workers, Executable.brief_call

    def noted(self: Executable, most: int, *others: Any) -> None:
        ran.append(most)
        run_workers(self, most, *others)

    def noted_brief(self: Executable, variables: list[DeviceBuffer]) -> BriefCall | SharedCall | None:
        found = brief_call(self, variables)
        if found is not None:
            ran.append(found.workers if isinstance(found, SharedCall) else 1)
        return found

    monkeypatch.setattr("engine.runtime.executable.inline_work", lambda: 0)
    monkeypatch.setattr(Executable, "_run_workers", noted)
    monkeypatch.setattr(Executable, "brief_call", noted_brief)
    return ran


@pytest.mark.sample(9)
@pytest.mark.parametrize("name", LOOPS)
def test_the_same_bits_for_any_number_of_workers(
    name: str, workers_that_run: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three steps in memory full of garbage."""
    module = LOOPS[name]()
    arguments = arguments_for(module)
    executable = Executable(build_program(module, ["variable"] * len(arguments), {}))
    found = []
    for workers in (1, 2, 3, 4):
        monkeypatch.setenv("NUMBA_NUM_THREADS", str(workers))
        held = buffers(arguments)
        results = []
        for _ in range(3):
            poison(executable)
            results += executable.run(1, [], held)
        found.append([*results, *(h.read() for h in held)])
    assert workers_that_run == [1] * 3 + [2] * 3 + [3] * 3 + [4] * 3
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            assert one.tobytes() == two.tobytes()


@pytest.mark.parametrize("magnitude", [0.0, 0.1, 1.0, 50.0, np.nan])
def test_the_data_decide_the_number_of_iterations(magnitude: float) -> None:
    module = until_small()
    x = np.full(9, magnitude, np.float32)
    check(module, [x])
    iterations, _ = evaluate(module, [x])
    assert iterations == {0.0: 0, 0.1: 0, 1.0: 7, 50.0: 18}.get(magnitude, 0)


@pytest.mark.parametrize(("outer", "inner"), [(0, 3), (1, 0), (5, 0), (2, 9)])
def test_loops_of_no_iteration(outer: int, inner: int) -> None:
    check(nested(outer, inner), tolerance=1e-4)


def test_many_steps_of_many_iterations() -> None:
    module = until_small(3)
    executable = Executable(build_program(module, ["variable"], {}))
    for size in (0.0, 2.0, 1e30, 0.2):
        x = np.full(3, size, np.float32)
        results = executable.run(4, [], buffers([x]))
        for result, value in zip(results, evaluate(module, [x]), strict=True):
            assert_near(result, value)


@pytest.mark.parametrize("name", ["tensor_array", "two_rows"])
def test_arrays_are_written_in_place(name: str) -> None:
    """Iterations move no arrays of the state's size."""
    module = LOOPS[name]()
    program = build_program(module, ["variable"] * len(module.entry.parameters), {})
    (iteration,) = (r for r in program.regions if not r.repeats)
    for compute_set in program.compute_sets[iteration.begin : iteration.end]:
        moved = compute_set.name.endswith((".copy", ".update"))
        assert not moved or compute_set.writes[0].buffer.shape.elements == 1, compute_set.name


def test_a_variable_is_updated_in_part_in_place() -> None:
    assert not [name for name in names_of(LOOPS["cache_update"]()) if name.endswith((".copy", ".update"))]


def test_state_that_does_not_change_is_not_copied() -> None:
    copied = [name for name in names_of(LOOPS["updated_variables"]()) if name.endswith(".initial")]
    assert not copied  # nobody reads the count, the product lies in the variable, and the weights do not change


@pytest.mark.parametrize(
    ("name", "copied"),
    [
        ("recurrence", 0),
        ("recurrence_backwards", 0),
        ("recurrence_out_of_the_array", 0),
        ("recurrence_of_some_rows", 1),
    ],
)
def test_what_a_loop_overwrites_has_no_initial_value(name: str, copied: int) -> None:
    """Lists whose rows are all filled need no initial value; where rows are left out, they must keep theirs."""
    program = build_program(LOOPS[name](), ["variable"] * 3, {})
    (first, _) = (r for r in program.regions if r.repeats)
    lists = [s for s in program.compute_sets[: first.begin] if s.writes[0].buffer.shape.rank == 3]
    assert len(lists) == copied


@pytest.mark.parametrize("workers", [2, 4])
def test_workers_do_not_synchronise_in_a_recurrent_layer(workers: int) -> None:
    """Workers synchronise neither in the forward loop nor between two iterations; the backward loop has syncs."""
    program = build_program(LOOPS["recurrence"](), ["variable"] * 3, {})
    executable = Executable(program)
    executable._bind(buffers(arguments_for(LOOPS["recurrence"]())))
    kinds = executable._table(False, workers)[:, Column.KIND].tolist()
    repeats = [row for row, kind in enumerate(kinds) if kind == RowKind.REPEAT]
    first = executable._table(False, workers)[repeats[0], Column.TARGET]
    assert RowKind.SYNC not in kinds[first : repeats[0]]
    assert RowKind.SYNC in kinds[repeats[0] : repeats[1]]
    assert not {RowKind.BRANCH, RowKind.JUMP} & set(kinds)


def test_loop_invariants_are_computed_once() -> None:
    """Computed before the loop: the bias read from a variable, and the weights transposed for the backward product."""
    program = transpose_weights(build_program(LOOPS["recurrence"](), ["variable"] * 3, {}))
    inside = [s for r in program.regions if r.repeats for s in program.compute_sets[r.begin : r.end]]
    outside = [s for s in program.compute_sets if s not in inside]
    assert sum(s.name.endswith(".transposed") for s in outside) == 1
    weights = {s.buffer for each in inside for s in each.reads if s.buffer.shape.dimensions == (40, 40)}
    assert {w.kind for w in weights} == {"variable", "arena"}
    assert not any(s.name.startswith("slice") for s in inside)
