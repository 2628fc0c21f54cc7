"""Functions of the host in programs: called once each time and in order; their errors end the step alone."""

from __future__ import annotations

import ctypes
import time
from functools import cache
from typing import Any

import numpy as np
import pytest

from engine.compile import build_program, compile_module
from engine.debug import DebugExecutable
from engine.errors import ConfigurationError, HostFunctionError, UnsupportedOperation
from engine.evaluated_executable import EvaluatedExecutable
from engine.files.executable_file import ExecutableFile, Signature, to_bytes
from engine.host_functions import CFunction, HostFunction, PythonFunction
from engine.ir import Instruction, Module, Shape
from engine.ir.builder import Builder
from engine.profile.streams import host_bytes
from engine.program.printer import print_program
from engine.runtime import workers
from engine.runtime.segments import BRIEF_SECONDS
from tests.engine.queue_programs import TOKEN, conditional, part, repeat
from tests.engine.running import buffers
from tests.interrupting import interrupted_when

SIZE = 5000
X = Shape("f32", (SIZE,))


def called(b: Builder, function: HostFunction, x: Instruction, token: Instruction) -> list[Instruction]:
    """The result of calling a function with one array, and the token."""
    call = b.host_function(function, [x], [x.array_shape], token)
    return [part(b, call, 0), part(b, call, 1)]


def looped(function: HostFunction, iterations: int) -> Module:
    """A variable x: in each iteration x is f(x) + 1."""
    b = Builder()
    x, token = b.parameter_of(X), b.parameter_of(TOKEN)

    def body(inner: Builder, state: list[Instruction]) -> list[Instruction]:
        y, after = called(inner, function, state[0], state[1])
        return [inner.add(y, inner.splat(1.0, (SIZE,))), after]

    results = repeat(b, iterations, [x, token], body) if iterations > 1 else body(b, [x, token])
    return b.module(b.tuple(*results), {0: 0, 1: 1})


def run(executable: Any, x: np.ndarray, steps: int = 1) -> np.ndarray:
    held = buffers([x, np.zeros((), np.int32)])
    executable.run(steps, [], held)
    return held[0].read()


@cache
def c_function(status: int = 0) -> tuple[object, int]:
    """A function of the documented signature: doubles SIZE floats, counts its calls in the word at `data`."""
    numba = pytest.importorskip("numba")

    @numba.cfunc("int64(CPointer(CPointer(float32)), CPointer(CPointer(float32)), CPointer(int64))")
    def double(operands: Any, results: Any, data: Any) -> int:
        data[0] += 1
        x, y = numba.carray(operands[0], SIZE), numba.carray(results[0], SIZE)
        for k in range(SIZE):
            y[k] = 2 * x[k]
        return status

    return double, double.address


@pytest.mark.parametrize("workers", ["1", "2"])
def test_python_function_is_called_once_in_each_iteration(workers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_NUM_THREADS", workers)
    seen: list[float] = []

    def half(x: np.ndarray) -> list[np.ndarray]:
        assert not x.flags.writeable
        seen.append(float(x[-1]))
        return [x / 2]

    function = PythonFunction("half", half)
    module = looped(function, 4)
    roles = ["variable", "variable"]
    program = build_program(module, roles, {}, verify=True)
    assert "half" in print_program(program)
    assert host_bytes(program) == (16 * SIZE, 16 * SIZE)
    x = np.arange(SIZE, dtype=np.float32)
    expected = x
    for _ in range(8):
        expected = expected / 2 + 1
    for executable in (
        compile_module(module, roles, {}, verify=True),
        EvaluatedExecutable(module, roles, {}),
        DebugExecutable(program),
    ):
        np.testing.assert_array_equal(run(executable, x, steps=2), expected)
        assert len(seen) == 8
        assert seen[0] == SIZE - 1
        seen.clear()


def test_c_function_gets_the_arrays_in_place_and_its_data() -> None:
    keep, address = c_function()
    count = np.zeros(1, np.int64)
    function = CFunction("double", address, count.ctypes.data, keep)
    executable = compile_module(looped(function, 3), ["variable", "variable"], {}, verify=True)
    x = np.arange(SIZE, dtype=np.float32)
    np.testing.assert_array_equal(run(executable, x, steps=2), 64 * x + 63)
    assert count[0] == 6
    np.testing.assert_array_equal(function.bind((X,), (X,))([x])[0], 2 * x)


def test_brief_call_of_c_starts_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step known to be brief starts no thread, as no signal is handled during a C function."""
    keep, address = c_function()
    count = np.zeros(1, np.int64)
    function = CFunction("double", address, count.ctypes.data, keep)
    executable = compile_module(looped(function, 1), ["variable", "variable"], {})
    held = buffers([np.ones(SIZE, np.float32), np.zeros((), np.int32)])
    while executable.choice.step_seconds >= BRIEF_SECONDS:
        executable.run(1, [], held)
    monkeypatch.setattr(workers, "NativeThreadPool", None)
    executable.run(1, [], held)
    assert held[0].read()[0] == 2.0 ** (count[0] + 1) - 1


def test_another_number_than_zero_ends_the_step() -> None:
    keep, address = c_function(7)
    count = np.zeros(1, np.int64)
    function = CFunction("refuse", address, count.ctypes.data, keep)
    executable = compile_module(looped(function, 3), ["variable", "variable"], {})
    held = buffers([np.ones(SIZE, np.float32), np.zeros((), np.int32)])
    with pytest.raises(HostFunctionError, match="'refuse' to return 0. Received: 7"):
        executable.run(2, [], held)
    assert count[0] == 1
    np.testing.assert_array_equal(held[0].read(), 1)


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("kind", ["tiles", "definitions", "debug"])
def test_error_of_the_callable_is_raised_with_its_traceback(
    kind: str, workers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step that raises leaves no trace; then the program goes on."""
    monkeypatch.setenv("NUMBA_NUM_THREADS", workers)
    count = 0

    def once_wrong(x: np.ndarray) -> list[np.ndarray]:
        nonlocal count
        count += 1
        if count == 5:
            raise KeyError("the fifth")
        return [x]

    function = PythonFunction("once_wrong", once_wrong)
    module, roles = looped(function, 3), ["variable", "variable"]
    if kind == "tiles":
        executable = compile_module(module, roles, {}, verify=True)
    elif kind == "debug":
        executable = DebugExecutable(build_program(module, roles, {}))
    else:
        executable = EvaluatedExecutable(module, roles, {})  # type: ignore[assignment]
    held = buffers([np.zeros(SIZE, np.float32), np.zeros((), np.int32)])
    with pytest.raises(KeyError, match="the fifth") as caught:
        executable.run(3, [], held)
    assert caught.traceback[-1].name == "once_wrong"
    np.testing.assert_array_equal(held[0].read(), 3)
    executable.run(2, [], held)
    np.testing.assert_array_equal(held[0].read(), 9)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ([np.zeros(SIZE)], r"f32\[5000\] as result 0 .*Received: float64\[5000\]"),
        ([np.zeros((SIZE, 1), np.float32)], r"f32\[5000\] as result 0 .*Received: float32\[5000, 1\]"),
        ([], "1 results .*Received: 0"),
    ],
)
def test_results_of_other_shapes_are_refused(returned: list[np.ndarray], message: str) -> None:
    function = PythonFunction("wrong", lambda x: returned)
    executable = compile_module(looped(function, 2), ["variable", "variable"], {})
    with pytest.raises(HostFunctionError, match=message):
        run(executable, np.zeros(SIZE, np.float32))


def test_branch_calls_only_where_it_is_taken() -> None:
    seen: list[float] = []
    function = PythonFunction("note", lambda x: (seen.append(float(x[0])), [x])[1])
    b = Builder()
    x, token = b.parameter_of(X), b.parameter_of(TOKEN)
    first = b.reshape(b.slice(x, (0, 1)), ())
    chosen = conditional(
        *(b, b.compare(first, b.constant(1.5), "GT"), [x, token]),
        lambda inner, state: called(inner, function, *state),
        lambda inner, state: state,
    )
    one = b.splat(1.0, (SIZE,))
    module = b.module(b.tuple(b.add(chosen[0], one), chosen[1]), {0: 0, 1: 1})
    executable = compile_module(module, ["variable", "variable"], {}, verify=True)
    np.testing.assert_array_equal(run(executable, np.zeros(SIZE, np.float32), steps=4), 4)
    assert seen == [2.0, 3.0]


@pytest.mark.parametrize("from_another_thread", [False, True])
def test_interruption_ends_the_callable(from_another_thread: bool) -> None:
    """The signal ends the callable on the calling thread; on another thread its next bytecode does."""
    running = []

    def endless(x: np.ndarray) -> list[np.ndarray]:
        running.append(1)
        while True:
            time.sleep(0.01)

    function = PythonFunction("endless", endless)
    executable = compile_module(looped(function, 2), ["variable", "variable"], {})
    executable._host_calls.take_the_caller = not from_another_thread
    held = buffers([np.zeros(SIZE, np.float32), np.zeros((), np.int32)])
    with interrupted_when(lambda: bool(running)):
        executable.run(3, [], held)
    function.callable = lambda x: [x]
    np.testing.assert_array_equal(held[0].read(), 0)
    again = compile_module(looped(function, 2), ["variable", "variable"], {})
    again.run(1, [], held)
    np.testing.assert_array_equal(held[0].read(), 2)


def test_signal_that_comes_while_machine_code_runs_ends_the_step() -> None:
    """Python raises the signal's error as soon as bytecode runs, at the beginning of the callable."""
    numba = pytest.importorskip("numba")
    send = ctypes.CDLL(None)["raise"]
    send.argtypes, send.restype = [ctypes.c_int], ctypes.c_int

    @numba.cfunc("int64(intp, intp, intp)")
    def interrupting(operands: int, results: int, data: int) -> int:
        return send(2)

    signal, function = CFunction("signal", interrupting.address), PythonFunction("same", lambda x: [x])
    b = Builder()
    x, token = b.parameter_of(X), b.parameter_of(TOKEN)
    sent = b.host_function(signal, [x], [], token)
    y, after = called(b, function, x, part(b, sent, 0))
    module = b.module(b.tuple(b.add(y, b.splat(1.0, (SIZE,))), after), {0: 0, 1: 1})
    executable = compile_module(module, ["variable", "variable"], {})
    held = buffers([np.zeros(SIZE, np.float32), np.zeros((), np.int32)])
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            executable.run(1, [], held)
    np.testing.assert_array_equal(held[0].read(), 0)


def test_deleted_function_and_exports_are_refused() -> None:
    function = PythonFunction("gone", lambda x: [x])
    module = looped(function, 2)
    with pytest.raises(UnsupportedOperation, match="'gone'"):
        to_bytes(ExecutableFile(module, ["variable", "variable"], {}, Signature((), ())))
    del function
    with pytest.raises(ConfigurationError, match="is in this process"):
        compile_module(module, ["variable", "variable"], {})
