"""A training that is killed goes on from its last checkpoint, in a new process, to the same numbers."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.estimators.killed import train
from tests.interrupting import HANGS_SECONDS

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_killed_training_resumes(tmp_path: Path) -> None:
    folder, last = str(tmp_path / "killed"), 48
    for runs in np.random.default_rng(0).integers(1, 5, 2):
        command = [sys.executable, "-m", "tests.estimators.killed", folder, str(last), str(runs)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=HANGS_SECONDS)
        assert done.returncode == -signal.SIGKILL, done.stderr
    resumed, undisturbed = train(folder, last, []), train(str(tmp_path / "alone"), last, [])
    for name in undisturbed.get_variable_names():
        np.testing.assert_array_equal(resumed.get_variable_value(name), undisturbed.get_variable_value(name), name)
