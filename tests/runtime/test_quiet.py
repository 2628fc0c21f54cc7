"""OpenBLAS' idle threads: quiet after the call, left alone when the user decided."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from engine.runtime.threads import usable_cores

LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")

OPTED_OUT = {"OPENBLAS_THREAD_TIMEOUT": "28"}

PROGRAM = """
import time
import numpy as np
from engine.runtime.quiet import quiet_openblas
a = np.ones((512, 512), np.float32)
expected = a @ a
reached = quiet_openblas()
assert quiet_openblas() == reached
assert np.array_equal(a @ a, expected)
began = time.process_time()
time.sleep(0.3)
print(reached, time.process_time() - began)
"""


def run(environment: dict[str, str]) -> tuple[int, float]:
    """Libraries reached, and processor seconds burnt while sleeping after a matrix product."""
    variables = {k: v for k, v in os.environ.items() if k != "OPENBLAS_THREAD_TIMEOUT"} | environment
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=variables,
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    reached, seconds = result.stdout.split()
    return int(reached), float(seconds)


@LINUX
def test_nobody_spins_after_a_matrix_product() -> None:
    _reached, seconds = run({})
    assert seconds < 0.01  # a spinning thread burns up to 0.1, less on a busy machine


@LINUX
def test_the_users_choice_is_left_alone() -> None:
    reached, _seconds = run({"OPENBLAS_THREAD_TIMEOUT": "20"})
    assert reached == 0


@LINUX
@pytest.mark.skipif(usable_cores() < 2, reason="OpenBLAS has no idle threads on one core")
def test_only_the_documented_value_brings_the_spinning_back() -> None:
    quiet, spinning = (min(run(environment)[1] for _ in range(2)) for environment in ({}, OPTED_OUT))
    assert spinning > 5 * quiet
