"""Compute sets that do not depend on a call of the host run during the call, those that depend on it afterwards."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from engine.compile import build_program
from engine.debug import DebugExecutable
from engine.errors import DebugError
from engine.evaluate import evaluate
from engine.host_functions import PythonFunction
from engine.ir import Module, Shape
from engine.ir.builder import Builder
from engine.program.program import Program
from engine.runtime.executable import Executable
from engine.runtime.executor import Column, RowKind
from tests.engine.queue_programs import TOKEN, part, repeat
from tests.engine.running import buffers
from tests.interrupting import PATIENCE_SECONDS

SIZE = 320
SQUARE = Shape("f32", (SIZE, SIZE))


def beside(function: PythonFunction, iterations: int = 1) -> Module:
    """A variable x of [SIZE], and w: in each iteration w is tanh(tanh(w w) w), and x is f(x) + the row sums of w."""
    b = Builder()
    x, w, token = b.parameter("f32", (SIZE,)), b.parameter("f32", (SIZE, SIZE)), b.parameter_of(TOKEN)

    def body(inner: Builder, state: list[Any]) -> list[Any]:
        x, w, token = state
        w = inner.elementwise("tanh", inner.dot(inner.elementwise("tanh", inner.dot(w, w)), w))
        call = inner.host_function(function, [x], [x.array_shape], token)
        row_sums = inner.reduce(w, inner.constant(0.0), (1,))
        return [inner.add(part(inner, call, 0), row_sums), w, part(inner, call, 1)]

    results = repeat(b, iterations, [x, w, token], body) if iterations > 1 else body(b, [x, w, token])
    return b.module(b.tuple(results[0], results[2]), {0: 0, 2: 1})


def arguments() -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    # A product of two such w is about as large as w. Of larger ones, each iteration multiplies rounding errors.
    w = rng.normal(size=(SIZE, SIZE), scale=SIZE**-0.5).astype(np.float32)
    return [np.arange(SIZE, dtype=np.float32), w, np.int32(0)]


def claimed_memory(executable: Executable) -> list[np.ndarray]:
    """The arrays that claimed compute sets write, in the arena."""
    found = []
    for each in executable._running.compute_sets:
        if each.claimed:
            for buffer in (span.buffer for span in each.writes):
                start = executable.plan.offsets[buffer]
                found.append(executable._arena[start : start + buffer.shape.bytes].view(buffer.shape.dtype))
    return found


@pytest.fixture
def two_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_NUM_THREADS", "2")


def made(module: Module) -> Program:
    return build_program(module, ["variable"] * 3, {}, verify=True)


@pytest.mark.usefixtures("two_workers")
@pytest.mark.parametrize("iterations", [1, 3])
def test_work_is_complete_before_the_call_returns(iterations: int) -> None:
    """During the call, the callable waits for arrays that only the other worker can be computing."""
    waits = [False]

    def half(x: np.ndarray) -> list[np.ndarray]:
        if waits[0]:
            deadline = time.monotonic() + PATIENCE_SECONDS
            while np.isnan(claimed_memory(executable)[-1]).any():
                assert time.monotonic() < deadline, "the other worker waits for this one"
                time.sleep(0.001)
        return [x / 2]

    function = PythonFunction("half", half)
    module = beside(function, iterations)
    expected = evaluate(module, arguments())
    program = made(module)
    executable = Executable(program)
    assert [each.name for each in executable._running.compute_sets if each.claimed]
    waits[0] = True
    claimed_memory(executable)[-1][:] = np.nan  # before the call, as the other worker may be done when it begins
    held = buffers(arguments())
    executable.run(1, [], held)
    np.testing.assert_allclose(held[0].read(), expected[0], rtol=1e-3, atol=1e-2)
    waits[0] = False
    tested = buffers(arguments())
    DebugExecutable(program).run(1, [], tested)
    assert tested[0].read().tobytes() == held[0].read().tobytes()


@pytest.mark.usefixtures("two_workers")
def test_many_short_calls_give_the_same_bits() -> None:
    """Either worker takes the parts, whichever comes first."""
    half = PythonFunction("half", lambda x: [x / 2])
    program = made(beside(half, 3))
    results = []
    for _ in range(2):
        executable, held = Executable(program), buffers(arguments())
        for steps in (1, 2):
            executable.run(steps, [], held)
        results.append(held[0].read())
    debugged = buffers(arguments())
    DebugExecutable(program, tiles=3).run(3, [], debugged)
    results.append(debugged[0].read())
    assert len({each.tobytes() for each in results}) == 1


@pytest.mark.usefixtures("two_workers")
def test_failed_call_leaves_the_step_and_no_trace() -> None:
    count = 0

    def once_wrong(x: np.ndarray) -> list[np.ndarray]:
        nonlocal count
        count += 1
        if count == 3:
            raise KeyError("the third")
        return [x / 2]

    function = PythonFunction("once_wrong", once_wrong)
    executable = Executable(made(beside(function)))
    held, twin = buffers(arguments()), buffers(arguments())
    with pytest.raises(KeyError, match="the third"):
        executable.run(4, [], held)
    executable.run(2, [], twin)
    np.testing.assert_array_equal(held[0].read(), twin[0].read())
    executable.run(1, [], held)
    executable.run(1, [], twin)
    np.testing.assert_array_equal(held[0].read(), twin[0].read())


def test_the_debug_executor_finds_a_missing_wait() -> None:
    class Hasty(DebugExecutable):
        def _table(self, all_outputs: bool, workers: int) -> np.ndarray:
            table = super()._table(all_outputs, workers).copy()
            claimed = table[:, Column.KIND] == RowKind.CLAIMED
            table[claimed, Column.PREDICATE] = table[claimed, Column.TARGET]
            return table

    half = PythonFunction("half", lambda x: [x / 2])
    program = made(beside(half))
    with pytest.raises(DebugError, match="Expected a sync between"):
        Hasty(program).run(1, [], buffers(arguments()))
