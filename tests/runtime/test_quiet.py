"""OpenBLAS' idle threads are quiet after a call, unless the user decided otherwise."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from engine.runtime import quiet
from engine.runtime.threads import usable_cores
from tests.interrupting import HANGS_SECONDS

OPTED_OUT = {"OPENBLAS_THREAD_TIMEOUT": "28"}

PROGRAM = """
import time
import numpy as np
from engine.runtime.quiet import quiet_openblas
a = np.ones((512, 512), np.float32)
expected = a @ a
reached = quiet_openblas()
assert quiet_openblas() == reached
burnt = []
for _ in range(5):
    assert np.array_equal(a @ a, expected)
    began = time.process_time()
    time.sleep(0.15)
    burnt.append(time.process_time() - began)
print(reached, *burnt)
"""


def run(environment: dict[str, str]) -> tuple[int, list[float]]:
    """The number of libraries found, and processor seconds burnt in each sleep after a matrix product."""
    variables = {k: v for k, v in os.environ.items() if k != "OPENBLAS_THREAD_TIMEOUT"} | environment
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=variables | {"OPENBLAS_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        check=True,
        timeout=HANGS_SECONDS,
    )
    reached, *burnt = result.stdout.split()
    return int(reached), [float(seconds) for seconds in burnt]


def test_no_thread_spins_after_a_matrix_product() -> None:
    _reached, burnt = run({})
    assert sorted(burnt)[2] < 0.01  # a spinning thread burns up to 0.1, less on a busy machine


def test_threads_are_quiet_from_the_start_where_numpy_is_not_loaded_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    for environment in ({}, OPTED_OUT):
        monkeypatch.setenv(quiet.VARIABLE, "")  # to be restored
        monkeypatch.delenv(quiet.VARIABLE)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        quiet.quiet_from_the_start()
        assert os.environ.get(quiet.VARIABLE) == environment.get(quiet.VARIABLE)  # NumPy is loaded: too late
        with monkeypatch.context() as patch:
            patch.delitem(sys.modules, "numpy", raising=False)
            quiet.quiet_from_the_start()
        assert os.environ[quiet.VARIABLE] == environment.get(quiet.VARIABLE, quiet.TICKS)


def test_the_users_choice_is_left_alone() -> None:
    reached, _burnt = run({"OPENBLAS_THREAD_TIMEOUT": "20"})
    assert reached == 0


@pytest.mark.skipif(usable_cores() < 2, reason="OpenBLAS has no idle threads on one core")
def test_only_the_documented_value_brings_the_spinning_back() -> None:
    """Threads without a core do not burn it, however long they would spin: the most of many times shows."""
    quiet = sorted(run({})[1])[2]
    assert any(max(run(OPTED_OUT)[1]) > 5 * quiet for _ in range(20))
