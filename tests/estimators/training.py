"""Trainings that may be killed."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

from tensorflow.python import ipu

from tests.estimators.models import BATCHES, regressor, repeated, run_config, v1


class Killed(v1.train.SessionRunHook):
    """A hook that kills the process after a number of runs, or of seconds after the first one."""

    def __init__(self, runs: int | None = None, seconds: float | None = None) -> None:
        self._left, self._seconds = runs, seconds

    def after_run(self, context: Any, values: Any) -> None:
        if self._seconds is not None:
            threading.Timer(self._seconds, _kill).start()
            self._seconds = None
        if self._left is not None:
            self._left -= 1
            if not self._left:
                _kill()


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def train(
    folder: str, last_step: int, runs: int | None = None, seconds: float | None = None, hooks: tuple[Any, ...] = ()
) -> Any:
    """The estimator after training; a checkpoint is saved after each pass over the data."""
    config = run_config(4, save_checkpoints_steps=BATCHES)
    estimator = ipu.ipu_estimator.IPUEstimator(regressor(lambda: v1.train.AdamOptimizer(0.1)), folder, config)
    return estimator.train(repeated, [Killed(runs, seconds), *hooks], max_steps=last_step)
