"""Hooks that stop an estimator's sessions, and make the hooks of TensorFlow know its loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorflow.python.training.session_run_hook import SessionRunHook


class StopAtLastStep(SessionRunHook):
    """Stops when the global step has increased by `steps`, or has become `max_steps`."""

    def __init__(self, global_step: Any, steps: int | None, max_steps: int | None) -> None:
        self._global_step, self._steps, self._last = global_step, steps, max_steps

    def after_create_session(self, session: Any, coord: object) -> None:
        """Notes the last step; a session that is created again goes on."""
        if self._last is None:
            assert self._steps is not None
            self._last = int(session.run(self._global_step)) + self._steps

    def after_run(self, run_context: Any, run_values: object) -> None:
        """Stops at the last step."""
        if run_context.session.run(self._global_step) >= self._last:
            run_context.request_stop()


class StopAfterRuns(SessionRunHook):
    """Counts runs, `done`, and stops after `runs` of them if it is not None."""

    def __init__(self, runs: int | None) -> None:
        self._runs, self.done = runs, 0

    def after_run(self, run_context: Any, run_values: object) -> None:
        """Counts a run."""
        self.done += 1
        if self.done == self._runs:
            run_context.request_stop()


class EndOfData(SessionRunHook):
    """Starts an infeed with its session, and stops at the end of the data set.

    Args:
        initializer: the infeed's.
        cardinality: the number of batches of the data set, a tensor; negative where it is infinite or unknown.
        batches: a function that counts them.
        batches_per_run: the number that one run takes.
    """

    def __init__(self, initializer: Any, cardinality: Any, batches: Callable[[], int], batches_per_run: int) -> None:
        self._initializer, self._cardinality, self._count = initializer, cardinality, batches
        self._batches_per_run, self._batches, self._runs = batches_per_run, -1, 0
        self._running = False

    def after_create_session(self, session: Any, coord: object) -> None:
        """Starts with the first element."""
        _, self._batches = session.run([self._initializer, self._cardinality])
        self._runs = 0

    def before_run(self, run_context: object) -> None:
        """Notes that a run begins."""
        self._running = True

    def after_run(self, run_context: Any, run_values: object) -> None:
        """Stops where no run is left."""
        self._running = False
        self._runs += 1
        if self._is_last:
            run_context.request_stop()

    @property
    def _is_last(self) -> bool:
        return self._batches >= 0 and self._runs >= self._batches // self._batches_per_run

    @property
    def reached(self) -> bool:
        """Whether all whole runs have been executed, or one has failed, as it does at an end that was unknown."""
        return self._running or self._is_last

    def left_over(self) -> int:
        """The number of batches at the end of the data set that fill no run."""
        return int(self._batches if self._batches >= 0 else self._count()) % self._batches_per_run


def for_loops(hook: Any, iterations: int) -> Any:
    """The hook of TensorFlow, told by how much one run increases the global step."""
    hook._set_steps_per_run(iterations)
    return hook
