"""Hooks that stop an estimator's sessions, and hooks of TensorFlow adapted to its loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from engine.errors import ConfigurationError

SessionRunHook: Any = tf.compat.v1.train.SessionRunHook


class StopAtLastStep(SessionRunHook):
    """Stops when the global step has increased by `steps`, or has become `max_steps`, in runs of `iterations` each."""

    def __init__(self, steps: int | None, max_steps: int | None, iterations: int) -> None:
        self._global_step: Any = tf.compat.v1.train.get_global_step()
        self._steps, self._last, self._iterations = steps, max_steps, iterations

    def after_create_session(self, session: Any, coord: object) -> None:
        """Notes the last step, unless a session goes on. Raises ConfigurationError if no run ends at it."""
        first = int(session.run(self._global_step))
        if self._last is None:
            assert self._steps is not None
            self._last = first + self._steps
        check_steps(self._last - first, self._iterations)

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
    """Starts an infeed with its session, and stops at the end of the data set. It must be the last hook.

    It is created in the graph of the data set, in which the infeed has a session of its own.

    Args:
        initializer: the initializer of the infeed.
        cardinality: the number of batches of the data set, a tensor; negative where it is infinite or unknown.
        batches: a function that counts the batches.
        batches_per_run: the number of batches that one run takes.
        feeds: what the initializer and the cardinality are fed.
    """

    def __init__(
        self,
        initializer: Any,
        cardinality: Any,
        batches: Callable[[], int],
        batches_per_run: int,
        feeds: dict[Any, Any],
    ) -> None:
        self._feeds = feeds
        self._initializer, self._cardinality, self._count = initializer, cardinality, batches
        self._tables = tf.compat.v1.tables_initializer()
        self._session: Any = None
        self._batches_per_run, self._batches, self._runs = batches_per_run, -1, 0
        self._running = self._stopped = False

    def after_create_session(self, session: Any, coord: object) -> None:
        """Starts with the first element."""
        self._session = tf.compat.v1.Session(graph=self._initializer.graph, config=_without_copies())
        self._session.run(self._tables, self._feeds)
        _, self._batches = self._session.run([self._initializer, self._cardinality], self._feeds)
        self._runs = 0

    def before_run(self, run_context: object) -> None:
        """Notes that a run begins."""
        self._running = True

    def after_run(self, run_context: Any, run_values: object) -> None:
        """Stops where no run is left."""
        self._running, self._stopped = False, run_context.stop_requested
        self._runs += 1
        if self._is_last:
            run_context.request_stop()

    @property
    def _is_last(self) -> bool:
        return self._batches >= 0 and self._runs >= self._batches // self._batches_per_run

    @property
    def reached(self) -> bool:
        """Whether the data set has stopped the runs: after the last whole run or, with an unknown end, within one."""
        return self._running or self._is_last and not self._stopped

    def left_over(self) -> int:
        """The number of batches at the end of the data set that fill no run."""
        return int(self._batches if self._batches >= 0 else self._count()) % self._batches_per_run


def _without_copies() -> Any:
    """The configuration of a session that does not copy the arrays in its graph, as optimizers of graphs do."""
    config = tf.compat.v1.ConfigProto(allow_soft_placement=True)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = config.graph_options.optimizer_options.L0
    config.graph_options.place_pruned_graph = True
    return config


class SummariesOfLoops(tf.compat.v1.train.SummarySaverHook):
    """Saves summaries every `save_steps` steps, or after each run where one has more."""

    def __init__(self, iterations: int, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._iterations = iterations

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Saves the requested values, and notes the step at which the next run ends."""
        super().after_run(run_context, run_values)
        self._next_step = run_values.results["global_step"] + 2 * self._iterations  # the step is that before the run


def for_loops(hook: Any, iterations: int) -> Any:
    """Adapts a hook of TensorFlow to runs that increase the global step by more than 1."""
    if type(hook) is tf.compat.v1.train.StopAtStepHook:
        return StopAtLastStep(hook._num_steps, hook._last_step, iterations)
    if hasattr(hook, "_set_steps_per_run"):
        hook._set_steps_per_run(iterations)
    return hook


def check_steps(steps: int | None, iterations: int) -> None:
    """Raises ConfigurationError for a number of steps that fill no whole number of runs."""
    if steps is not None and steps % iterations:
        raise ConfigurationError(
            f"Expected steps to be a multiple of iterations_per_loop, {iterations}. Received: {steps} steps to run. "
            f"Nearest: {max(round(steps / iterations), 1) * iterations}."
        )
