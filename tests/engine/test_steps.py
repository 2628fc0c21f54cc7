"""Calls of an executable with any number of workers: feeds and their rows, many steps, last and all outputs, errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.compile import compile_module
from engine.errors import InternalError, StepCountError
from engine.evaluated_executable import EvaluatedExecutable
from engine.ir import Module, shape_of
from engine.ir.builder import Builder
from engine.runtime.buffers import DeviceBuffer
from engine.runtime.choice import WorkerChoice
from engine.runtime.executable import Executable
from engine.runtime.feeds import RowFeed
from tests.engine.running import assert_near, buffers
from tests.program.programs import PROGRAMS, training_step, values_of

STEPS = 4


def split(module: Module, roles: list[str], steps: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Rows for `steps` steps of each feed, and a first value for each variable."""
    parameters = list(zip(module.entry.parameters, roles, strict=True))
    feeds = values_of([p for p, role in parameters if role == "feed"], rows=steps)
    return feeds, values_of([p for p, role in parameters if role == "variable"], seed=1)


def state(held: list[DeviceBuffer]) -> list[bytes]:
    return [h.read().tobytes() for h in held]


@pytest.mark.parametrize("name", ["training", "convolution", "embedding", "statistics", "products", "moves", "small 1"])
@pytest.mark.parametrize("outputs", ["last", "all"])
def test_agrees_with_the_definitions(name: str, outputs: str) -> None:
    module, roles = PROGRAMS[name]()
    feeds, values = split(module, roles, STEPS)
    made = [compile_module(module, roles, {}), EvaluatedExecutable(module, roles, {})]
    found = []
    for executable in made:
        held = buffers(values)
        results = executable.run(STEPS, [RowFeed(f) for f in feeds], held, outputs)  # type: ignore[arg-type]
        found.append([*results, *(h.read() for h in held)])
    assert len(found[0]) == len(found[1])
    for one, other in zip(*found, strict=True):
        assert_near(one, other, 1e-3)


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", PROGRAMS)
def test_many_steps_are_that_many_single_steps(name: str) -> None:
    module, roles = PROGRAMS[name]()
    feeds, values = split(module, roles, STEPS)
    executable = compile_module(module, roles, {})
    held = buffers(values)
    together = executable.run(STEPS, [RowFeed(f) for f in feeds], held, "all")
    after = state(held)
    held = buffers(values)
    for step in range(STEPS):
        rows = [f[step * len(f) // STEPS : (step + 1) * len(f) // STEPS] for f in feeds]
        results = executable.run(1, [RowFeed(np.ascontiguousarray(r)) for r in rows], held)
        for one, other in zip(together, results, strict=True):
            np.testing.assert_array_equal(one[step], other)
    assert state(held) == after


@pytest.mark.sample(12)
@pytest.mark.parametrize("name", PROGRAMS)
def test_same_bits_for_any_number_of_workers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.runtime.executable.inline_work", lambda: 0)
    module, roles = PROGRAMS[name]()
    feeds, values = split(module, roles, 3)
    executable = compile_module(module, roles, {})
    found = []
    monkeypatch.setenv("NUMBA_NUM_THREADS", "1")  # a number is given
    for workers in (1, 2, 3, 8, 32):
        monkeypatch.setattr("engine.runtime.executable.worker_count", lambda count=workers: count)
        held = buffers(values)
        results = executable.run(3, [RowFeed(f) for f in feeds], held, "all")
        found.append([r.tobytes() for r in results] + state(held))
    assert all(each == found[0] for each in found)


class Fickle(WorkerChoice):
    """Chooses another number of workers for every segment of a call, and segments of as few steps as possible."""

    pieces = 0
    is_crowded = True

    def workers(self, most: int, now: float) -> int:
        self.pieces += 1
        return 1 + self.pieces % most

    def patience(self, now: float) -> float:
        return 0.0


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", PROGRAMS)
def test_same_bits_when_workers_change_between_and_within_calls(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.runtime.executable.inline_work", lambda: 0)
    monkeypatch.setattr("engine.runtime.encode.is_fine_grained", lambda program: False)
    monkeypatch.setattr("engine.runtime.executable.worker_count", lambda: 3)
    monkeypatch.delenv("NUMBA_NUM_THREADS", raising=False)
    module, roles = PROGRAMS[name]()
    feeds, values = split(module, roles, 200)
    found, made = [], []
    for choice in (WorkerChoice, Fickle):
        monkeypatch.setattr("engine.runtime.executable.WorkerChoice", choice)
        made.append(compile_module(module, roles, {}))
        held = buffers(values)
        results = [made[-1].run(200, [RowFeed(f) for f in feeds], held, "all") for _ in range(3)]
        found.append([r.tobytes() for call in results for r in call] + state(held))
    assert found[0] == found[1]
    assert isinstance(made[1].choice, Fickle)
    assert made[1].choice.pieces >= 3


def test_small_calls_run_in_the_calling_thread_with_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    module, roles = training_step()
    feeds, values = split(module, roles, 2)
    executable = compile_module(module, roles, {})
    found = []
    for work_estimate in (0, 1 << 60):
        monkeypatch.setattr("engine.runtime.executable.inline_work", lambda most=work_estimate: most)
        held = buffers(values)
        results = executable.run(2, [RowFeed(f) for f in feeds], held)
        found.append([r.tobytes() for r in results] + state(held))
    assert found[0] == found[1]


def sums() -> tuple[Module, list[str]]:
    """Builds total += x (a batch of three rows), and returns the batch, its scale and the old total as a step sees
    them.
    """
    b = Builder()
    x, scale, total = b.parameter("f32", (3, 2)), b.parameter("f32"), b.parameter("f32", (2,))
    scaled = b.multiply(x, b.broadcast(scale, (3, 2), ()))
    new = b.add(total, b.reduce(scaled, b.constant(0.0), (0,)))
    return b.module(b.tuple(x, new, scaled, total), {2: 1}), ["feed", "feed", "variable"]


@pytest.mark.parametrize("shuffled", [False, True])
def test_feeds_take_rows_in_order_or_by_number(shuffled: bool) -> None:
    module, roles = sums()
    rng = np.random.default_rng(0)
    data, scales = rng.normal(size=(20, 2)).astype("f"), rng.normal(size=9).astype("f")
    rows = rng.integers(0, 20, 15) if shuffled else None
    numbers = rng.permutation(9) if shuffled else None
    held = buffers([np.zeros(2, np.float32)])
    executable = compile_module(module, roles, {})
    seen, scaled, old = executable.run(5, [RowFeed(data, rows), RowFeed(scales, numbers)], held, "all")
    chosen = (data[:15] if rows is None else data[rows]).reshape(5, 3, 2)
    factors = scales[:5] if numbers is None else scales[numbers[:5]]
    np.testing.assert_array_equal(seen, chosen)
    np.testing.assert_array_equal(scaled, chosen * factors[:, None, None])
    totals = np.cumsum(scaled.sum(1), 0)
    np.testing.assert_allclose(held[0].read(), totals[-1], rtol=1e-5)
    np.testing.assert_allclose(old[1:], totals[:-1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["u8", "f16", "s64", "pred", "f64"])
def test_feeds_of_every_width(kind: str) -> None:
    b = Builder()
    x = b.parameter(kind, (2, 5))
    module = b.module(b.tuple(b.reverse(x, (1,)), x))
    data = np.random.default_rng(1).integers(0, 2, (8, 5)).astype(x.array_shape.dtype)
    executable = compile_module(module, ["feed"], {})
    reverse, same = executable.run(4, [RowFeed(data)], [], "all")
    np.testing.assert_array_equal(same.reshape(8, 5), data)
    np.testing.assert_array_equal(reverse.reshape(8, 5), data[:, ::-1])


def test_constants_are_fixed() -> None:
    b = Builder()
    x, table, unused = b.parameter("f32", (4,)), b.parameter("f32", (4,)), b.parameter("f32", (2,))
    module = b.module(b.tuple(b.add(x, table), unused))
    values = {1: np.arange(4, dtype=np.float32), 2: np.full(2, 3, np.float32)}
    executable = compile_module(module, ["feed", "constant", "constant"], values)
    result, same = executable.run(1, [RowFeed(np.ones(4, np.float32))], [])
    assert result.tolist() == [1, 2, 3, 4] and same.tolist() == [3, 3]
    (many, fixed) = executable.run(2, [RowFeed(np.ones(8, np.float32))], [], "all")
    assert many.shape == (2, 4) and fixed.tolist() == [[3, 3]] * 2


def test_results_are_copies() -> None:
    module, roles = sums()
    executable = compile_module(module, roles, {})
    held = buffers([np.zeros(2, np.float32)])
    feeds = [RowFeed(np.ones((6, 2), np.float32)), RowFeed(np.ones(2, np.float32))]
    first = executable.run(1, feeds, held)
    kept = [r.copy() for r in first]
    executable.run(2, feeds, held)
    for one, other in zip(first, kept, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("steps", "rows", "scales"), [(0, 20, 20), (-1, 20, 20), (4, 11, 4), (4, 12, 3)])
def test_too_few_rows_leave_the_variables_alone(steps: int, rows: int, scales: int) -> None:
    module, roles = sums()
    feeds = [RowFeed(np.ones((rows, 2), np.float32)), RowFeed(np.ones(scales, np.float32))]
    for executable in (compile_module(module, roles, {}), EvaluatedExecutable(module, roles, {})):
        held = buffers([np.zeros(2, np.float32)])
        with pytest.raises(StepCountError, match="(?s)Expected.*Received"):
            executable.run(steps, feeds, held)
        assert held[0].read().tolist() == [0, 0]


def test_row_numbers_that_run_out_count_as_too_few() -> None:
    module, roles = sums()
    executable = compile_module(module, roles, {})
    feed = RowFeed(np.ones((20, 2), np.float32), np.arange(5))
    with pytest.raises(StepCountError, match="Run at most 1 steps"):
        executable.run(2, [feed, RowFeed(np.ones(2, np.float32))], buffers([np.zeros(2, np.float32)]))


def test_feeds_and_variables_that_do_not_fit_are_refused() -> None:
    module, roles = sums()
    executable = compile_module(module, roles, {})
    scale, held = RowFeed(np.ones(1, np.float32)), buffers([np.zeros(2, np.float32)])
    wrong = [
        RowFeed(np.ones((3, 2))),
        RowFeed(np.ones((3, 4), np.float32)),
        RowFeed(np.ones((3, 2), np.float32), np.array([0, 1, 3])),
        RowFeed(np.ones((3, 2), np.float32), np.array([0, -1, 2])),
    ]
    for feed in wrong:
        with pytest.raises(InternalError, match="Expected row"):
            executable.run(1, [feed, scale], held)
    good = RowFeed(np.ones((3, 2), np.float32))
    with pytest.raises(InternalError, match="Expected a variable"):
        executable.run(1, [good, scale], [DeviceBuffer(shape_of(np.zeros(3, np.float32)))])
    with pytest.raises(InternalError, match="Expected 1 variables"):
        executable.run(1, [good, scale], [])
    assert held[0].read().tolist() == [0, 0]


def test_two_executables_of_one_module_do_not_share_memory() -> None:
    module, roles = sums()
    feeds = [RowFeed(np.ones((3, 2), np.float32)), RowFeed(np.ones(1, np.float32))]
    made: list[Executable] = [compile_module(module, roles, {}) for _ in range(2)]
    held = [buffers([np.full(2, v, np.float32)]) for v in (0, 100)]
    for executable, mine in zip(made, held, strict=True):
        executable.run(1, feeds, mine)
    assert [mine[0].read()[0] for mine in held] == [3, 103]


def test_denormals_are_flushed_during_a_call_and_not_after_it() -> None:
    b = Builder()
    x = b.parameter("f32", (4,))
    module = b.module(b.multiply(x, x))
    (result,) = compile_module(module, ["variable"], {}).run(1, [], buffers([np.full(4, 1e-20, np.float32)]))
    assert result.tolist() == [0] * 4
    assert np.float32(1e-20) * np.float32(1e-20) > 0


def test_progress_is_told_of_new_codelets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    told: list[tuple[str, int, int]] = []
    b = Builder()
    x = b.parameter("f32", (4,))
    odd = b.splat(0.123456789 + np.pi, (4,))
    module = b.module(b.multiply(b.elementwise("tanh", b.subtract(x, odd)), odd))
    compile_module(module, ["variable"], {}, progress=lambda *seen: told.append(seen))
    count = len(told)  # the program's one, and those of calls, if neither this process nor the disk has them
    assert count and told == sorted(told) and all(done < total for _, done, total in told)
    compile_module(module, ["variable"], {}, progress=lambda *seen: told.append(seen))
    assert len(told) == count
