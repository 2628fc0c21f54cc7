"""Programs from files whose loops need not end: a time limit, Ctrl-C, other threads' calls, and calls afterwards."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from engine.errors import CallTimeout, ConfigurationError
from engine.files.executable_file import ExecutableFile
from engine.ir import Module
from engine.ir.builder import Builder
from engine.loaded import LoadedExecutable
from tests.files.programs import signature
from tests.interrupting import PATIENCE_SECONDS, acting_when, engine_runs, interrupted_when, living_workers
from tests.program.loop_parts import loop, next_count

SOON, ENDS, GOES_ON = 0.2, np.full((4, 3), -1.0, np.float32), np.full((4, 3), 1.0, np.float32)


def halving() -> Module:
    """Iterates while the sum of x is above 1, without changing x; a variable counts the calls."""
    b = Builder("halving")
    x, calls = b.parameter("f32", (4, 3)), b.parameter("s32")
    iterations, _ = loop(
        *(b, [b.constant(0, "s32"), x]),
        lambda c, e: c.compare(c.reduce(e[1], c.constant(0.0), (0, 1)), c.constant(1.0), "GT"),
        lambda s, e: [next_count(s, e[0]), s.elementwise("abs", e[1])],
    )
    same = b.broadcast(iterations, (4, 3), ())
    return b.module(b.tuple(same, next_count(b, calls)), aliases={1: 1})


def program() -> LoadedExecutable:
    module = halving()
    file = ExecutableFile(module, ["feed", "variable"], {}, signature(module, ["x"], ["n"]), {1: np.array(0, np.int32)})
    return LoadedExecutable(file)


def calls(loaded: LoadedExecutable) -> int:
    return int(loaded._variables[0].read())


@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_time_is_up(workers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_NUM_THREADS", workers)
    loaded = program()
    np.testing.assert_array_equal(loaded.run([ENDS], timeout=PATIENCE_SECONDS)[0], 0)
    for _ in range(2):
        with pytest.raises(CallTimeout, match=r"within 0\.2 seconds\. Received: one in step 1 of 1") as raised:
            loaded.run([GOES_ON], timeout=SOON)
        assert isinstance(raised.value, TimeoutError) and calls(loaded) == 1
    with pytest.raises(CallTimeout, match="step 2 of 3"):
        loaded.run_rows([np.concatenate([ENDS, GOES_ON, ENDS])], timeout=SOON)
    assert calls(loaded) == 2
    np.testing.assert_array_equal(loaded.run([ENDS])[0], 0)
    assert calls(loaded) == 3 and not living_workers()


def test_ctrl_c_leaves_the_loop() -> None:
    loaded = program()
    with interrupted_when(engine_runs):
        loaded.run([GOES_ON])
    with interrupted_when(engine_runs):
        loaded.run([GOES_ON], timeout=PATIENCE_SECONDS)
    assert calls(loaded) == 0
    loaded.run([ENDS])
    assert calls(loaded) == 1


def test_who_waits_for_another_call_has_a_limit_too() -> None:
    loaded = program()
    other = threading.Thread(target=lambda: pytest.raises(CallTimeout, loaded.run, [GOES_ON], timeout=5 * SOON))
    waited = []

    def wait() -> None:
        waited.append(pytest.raises(CallTimeout, loaded.run, [ENDS], timeout=SOON))

    with acting_when(engine_runs, wait):
        other.start()
        other.join()
    assert "another thread's call" in str(waited[0].value)
    loaded.run([ENDS])


@pytest.mark.parametrize("timeout", [0, -1.0, float("nan"), float("inf"), "1", True])
def test_what_is_no_time(timeout: object) -> None:
    with pytest.raises(ConfigurationError, match="Expected timeout to be a number of seconds above 0"):
        program().run([ENDS], timeout=timeout)  # type: ignore[arg-type]
