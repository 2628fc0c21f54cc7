"""`train_and_evaluate`: training with an evaluation after checkpoints, in one process."""

from __future__ import annotations

import os
import time
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from engine.errors import ConfigurationError
from ipu._internal.estimators.estimator import Estimator
from ipu._internal.estimators.specs import checked_hooks

TrainSpecBase = namedtuple("TrainSpecBase", "input_fn max_steps hooks saving_listeners")
EvalSpecBase = namedtuple("EvalSpecBase", "input_fn steps name hooks exporters start_delay_secs throttle_secs")


class TrainSpec(TrainSpecBase):
    """The input function, last step, hooks and saving listeners of a training: tf.estimator.TrainSpec."""

    __slots__ = ()

    def __new__(
        cls, input_fn: Callable[..., Any], max_steps: int | None = None, hooks: Any = None, saving_listeners: Any = None
    ) -> TrainSpec:
        if max_steps is not None and max_steps <= 0:
            raise ConfigurationError(f"Expected max_steps to be 1 or more. Received: {max_steps}.")
        return super().__new__(cls, input_fn, max_steps, checked_hooks(hooks), tuple(saving_listeners or ()))


class EvalSpec(EvalSpecBase):
    """The input function, steps, name, hooks and exporters of evaluations, and the least seconds between two.

    `start_delay_secs` is for evaluators in other processes. As tf.estimator.EvalSpec.
    """

    __slots__ = ()

    def __new__(
        cls,
        input_fn: Callable[..., Any],
        steps: int | None = 100,
        name: str | None = None,
        hooks: Any = None,
        exporters: Any = None,
        start_delay_secs: float = 120,
        throttle_secs: float = 600,
    ) -> EvalSpec:
        exporters = tuple(exporters) if isinstance(exporters, list | tuple) else (exporters,) if exporters else ()
        if steps is not None and steps <= 0:
            raise ConfigurationError(f"Expected steps to be 1 or more. Received: {steps}.")
        return super().__new__(
            cls, input_fn, steps, name, checked_hooks(hooks), exporters, start_delay_secs, throttle_secs
        )


class _Evaluations(tf.compat.v1.train.CheckpointSaverListener):
    """Evaluates after checkpoints, except the one before the first step."""

    def __init__(self, estimator: Estimator, spec: EvalSpec, last: int | None) -> None:
        self._estimator, self._spec, self._last = estimator, spec, last
        self._time, self._step = 0.0, -1
        self._first = True
        self.results: Any = None
        self.exports: list[Any] = []

    def begin(self) -> None:
        """Notes that the next checkpoint is the one before the first step."""
        self._first = True

    def after_save(self, session: object, global_step_value: int) -> None:
        """Evaluates the checkpoint, if `throttle_secs` have passed since the last evaluation."""
        if self._first:
            self._first, self._time = False, time.monotonic()
            return
        if global_step_value == self._last or time.monotonic() - self._time >= self._spec.throttle_secs:
            self.evaluate(global_step_value, global_step_value == self._last)

    def end(self, session: object, global_step_value: int) -> None:
        """Evaluates the last checkpoint."""
        if self._step != global_step_value:
            self.evaluate(global_step_value, True)

    def evaluate(self, step: int, is_final: bool) -> None:
        """Evaluates the latest checkpoint, and calls the exporters."""
        spec, estimator = self._spec, self._estimator
        with tf.Graph().as_default():
            self.results = estimator.evaluate(spec.input_fn, spec.steps, spec.hooks, name=spec.name)
        self._step, self._time = step, time.monotonic()
        self.exports = [
            exporter.export(
                *(estimator, os.path.join(estimator.model_dir, "export", exporter.name), estimator.latest_checkpoint()),
                *(self.results, is_final),
            )
            for exporter in spec.exporters
        ]


def train_and_evaluate(estimator: Estimator, train_spec: TrainSpec, eval_spec: EvalSpec) -> tuple[Any, list[Any]]:
    """Trains until `max_steps`, and evaluates after checkpoints and at the end, as tf.estimator.train_and_evaluate.

    Returns the metrics of the last evaluation and the results of its exporters; (None, []) if nothing was trained.

    Raises:
        TypeError: an argument is of another class.
        ValueError: TF_CONFIG has a cluster.
    """
    for name, given, expected in (
        ("estimator", estimator, Estimator),
        ("train_spec", train_spec, TrainSpec),
        ("eval_spec", eval_spec, EvalSpec),
    ):
        if not isinstance(given, expected):
            raise TypeError(f"Expected {name} to be a tf.estimator.{expected.__name__}. Received: {given!r}.")
    evaluations = _Evaluations(estimator, eval_spec, train_spec.max_steps)
    estimator.train(
        train_spec.input_fn,
        train_spec.hooks,
        max_steps=train_spec.max_steps,
        saving_listeners=[*train_spec.saving_listeners, evaluations],
    )
    return evaluations.results, evaluations.exports
