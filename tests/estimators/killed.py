"""Trains to a last step, from the checkpoints in a folder; it can kill itself after a number of runs.

python -m tests.estimators.killed FOLDER LAST_STEP [RUNS]
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from tensorflow.python import ipu

from tests.estimators.models import BATCHES, regressor, repeated, run_config, v1


class Killed(v1.train.SessionRunHook):
    """Kills the process after a number of runs."""

    def __init__(self, runs: int) -> None:
        self._left = runs

    def after_run(self, context: Any, values: Any) -> None:
        self._left -= 1
        if not self._left:
            os.kill(os.getpid(), signal.SIGKILL)


def train(folder: str, last_step: int, hooks: list[Any]) -> Any:
    """The estimator after training; a checkpoint is saved after each pass over the data."""
    config = run_config(4, save_checkpoints_steps=BATCHES)
    estimator = ipu.ipu_estimator.IPUEstimator(regressor(lambda: v1.train.AdamOptimizer(0.1)), folder, config)
    return estimator.train(repeated, hooks, max_steps=last_step)


if __name__ == "__main__":
    train(sys.argv[1], int(sys.argv[2]), [Killed(int(runs)) for runs in sys.argv[3:]])
