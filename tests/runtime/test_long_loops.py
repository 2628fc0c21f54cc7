"""Programs that may never end: an interruption leaves variables as they were after the last whole step."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from engine.compile import compile_module
from engine.ir import Module
from engine.ir.builder import Builder
from tests.engine.running import buffers
from tests.interrupting import PATIENCE_SECONDS, engine_runs, interrupted_when
from tests.program.loop_parts import below, loop, next_count, scaled

READY = "ready"


def until_negative() -> Module:
    """Builds a loop, endless once the sum is above 100; each step adds 1 to both variables, and counts iterations."""
    b = Builder("until_negative")
    x, steps = b.parameter("f32", (40,)), b.parameter("s32")
    iterations, _ = loop(
        *(b, [b.constant(0, "s32"), x]),
        lambda c, e: c.compare(c.reduce(e[1], c.constant(0.0), (0,)), c.constant(100.5), "GT"),
        lambda s, e: [next_count(s, e[0]), s.elementwise("abs", e[1])],
    )
    new = b.add(x, b.splat(1.0, (40,)))
    return b.module(b.tuple(iterations, new, next_count(b, steps)), aliases={0: 1, 1: 2})


@pytest.mark.parametrize("workers", ["1", "2", "3"])
def test_variables_are_as_after_the_last_whole_step(workers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three steps end. The fourth is endless and must not change a variable. Afterwards the program runs again."""
    monkeypatch.setenv("NUMBA_NUM_THREADS", workers)
    executable = compile_module(until_negative(), ["variable", "variable"], {})
    held = buffers([np.full(40, -0.25, np.float32), np.array(0, np.int32)])
    with interrupted_when(lambda: held[1].read() == 3):
        executable.run(1000, [], held)
    np.testing.assert_array_equal(held[0].read(), np.float32(2.75))
    assert held[1].read() == 3
    again = buffers([np.full(40, -5.0, np.float32), np.array(0, np.int32)])
    (iterations,) = executable.run(2, [], again)
    assert iterations == 0
    np.testing.assert_array_equal(again[0].read(), -3.0)


def test_a_known_long_loop_is_left_and_a_known_short_one_is_not() -> None:
    """A loop of many iterations ends at an interruption if it takes long; a short one updates variables in place."""

    def module(iterations: int) -> Module:
        b = Builder("counting")
        x = b.parameter("f32", (64,))
        _, y = loop(
            *(b, [b.constant(0, "s32"), x], below(iterations)), lambda s, e: [next_count(s, e[0]), scaled(s, e[1], 0.5)]
        )
        return b.module(b.tuple(y), aliases={0: 0})

    short, long = (compile_module(module(iterations), ["variable"], {}) for iterations in (100, 10**9))
    assert [r.long for r in short.program.regions if r.repeats] == [False]
    assert [r.long for r in long.program.regions if r.repeats] == [True]
    held = buffers([np.ones(64, np.float32)])
    with interrupted_when(engine_runs):
        long.run(1, [], held)
    np.testing.assert_array_equal(held[0].read(), 1.0)
    short.run(1, [], held)
    np.testing.assert_array_equal(held[0].read(), np.float32(2.0**-100))


PROGRAM = f"""
import signal, sys, threading
import numpy as np
from engine.compile import compile_module
from tests.engine.running import buffers
from tests.interrupting import engine_runs, wait_for
from tests.runtime.test_long_loops import until_negative

if "handler" in sys.argv:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
executable = compile_module(until_negative(), ["variable", "variable"], {{}})
threading.Thread(target=lambda: print("{READY}" if wait_for(engine_runs) else "late", flush=True)).start()
executable.run(1, [], buffers([np.full(40, 5.0, np.float32), np.array(0, np.int32)]))
"""


@pytest.mark.sample(1)
@pytest.mark.skipif(os.name == "nt", reason="sends POSIX signals")
@pytest.mark.parametrize(
    ("number", "mode", "code"),
    [
        (signal.SIGTERM, "plain", -signal.SIGTERM),
        (signal.SIGTERM, "handler", 7),
        (signal.SIGINT, "plain", -signal.SIGINT),
    ],
)
def test_the_process_ends_when_it_is_asked_to(number: signal.Signals, mode: str, code: int) -> None:
    command = [sys.executable, "-c", PROGRAM, mode]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None and process.stdout.readline().strip() == READY
        assert process.poll() is None
        process.send_signal(number)
        assert process.wait(PATIENCE_SECONDS) == code
