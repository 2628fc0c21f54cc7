"""The oracle's estimators and strategies: each call has a session, and variables keep their values in between."""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow.compat.v1 as v1

from tests.programs_tf1.plain_training import GradientAccumulationOptimizerV2, Method


class IPURunConfig:
    """Options of which an estimator reads the number of batches of a run."""

    def __init__(self, iterations_per_loop: int = 1, *_: Any, **__: Any) -> None:
        self.iterations_per_loop = iterations_per_loop


class RunConfig:
    """The options that a model function may read."""

    def __init__(
        self, ipu_run_config: Any = None, *_: Any, model_dir: Any = None, tf_random_seed: Any = 1, **__: Any
    ) -> None:
        self.ipu_run_config = ipu_run_config or IPURunConfig()
        self.model_dir, self.tf_random_seed = model_dir, tf_random_seed


class IPUEstimatorSpec:
    """The results of a model function."""

    def __init__(self, mode: str, predictions: Any = None, loss: Any = None, train_op: Any = None, **named: Any):
        self.mode, self.predictions, self.loss, self.train_op = mode, predictions, loss, train_op
        self.eval_metric_ops = named.get("eval_metric_ops") or {}
        self.eval_metrics = named.get("eval_metrics")


class IPUEstimator:
    """Trains, evaluates and predicts by TensorFlow's sessions."""

    _of_folder: dict[str, IPUEstimator] = {}

    def __init__(
        self,
        model_fn: Any,
        model_dir: Any = None,
        config: Any = None,
        params: Any = None,
        warm_start_from: Any = None,
        **_: Any,
    ) -> None:
        self._model_fn, self._values, self._steps = model_fn, dict[str, Any](), 0
        self.config, self.params, self.model_dir = config, params, model_dir
        self._of_folder[model_dir or getattr(config, "model_dir", None)] = self
        self._warm_start = warm_start_from

    def _warm(self, session: Any) -> None:
        """Starts trainable variables, those whose names match a pattern, with the values of another estimator."""
        folder = getattr(self._warm_start, "ckpt_to_initialize_from", self._warm_start)
        pattern = getattr(self._warm_start, "vars_to_warm_start", ".*")
        for variable in v1.trainable_variables():
            if folder and not self._values and re.match(pattern, variable.name):
                variable.load(self._of_folder[folder]._values[variable.op.name], session)

    @contextlib.contextmanager
    def _session(self, input_fn: Callable[..., Any], mode: str) -> Iterator[tuple[Any, Any, Any]]:
        with v1.Graph().as_default():
            v1.set_random_seed(self.config.tf_random_seed if self.config else 1)
            step = v1.train.get_or_create_global_step()
            data = self._called(input_fn, mode=mode)
            element = v1.data.make_one_shot_iterator(data).get_next() if hasattr(data, "element_spec") else data
            spec = (
                self._spec(*(*element, None)[:2], mode)
                if isinstance(element, tuple)
                else self._spec(element, None, mode)
            )
            with v1.Session() as session:
                session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
                self._warm(session)
                for variable in v1.global_variables():
                    if variable.op.name in self._values:
                        variable.load(self._values[variable.op.name], session)
                yield session, spec, step
                if mode == "train":
                    self._values = session.run({v.op.name: v for v in v1.global_variables()})

    def _spec(self, features: Any, labels: Any, mode: str) -> Any:
        positional = [features, labels] if "labels" in inspect.signature(self._model_fn).parameters else [features]
        return self._called(self._model_fn, *positional, mode=mode)

    def _called(self, function: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
        known = inspect.signature(function).parameters
        more |= {"params": self.params, "config": self.config}
        return function(*arguments, **{name: value for name, value in more.items() if name in known})

    def train(self, input_fn: Any, hooks: Any = None, steps: Any = None, max_steps: Any = None, **_: Any) -> Any:
        """Runs `steps` updates, or up to `max_steps`."""
        per_run = self.config.ipu_run_config.iterations_per_loop if self.config else 1
        with self._session(input_fn, "train") as (session, spec, step):
            for _number in range(steps if steps is not None else max_steps - self._steps):
                session.run(spec.train_op)
                self._steps += 1
                if self._steps % per_run == 0:  # the IPU sees the global step as it was before the run
                    step.load(self._steps, session)
        return self

    def evaluate(self, input_fn: Any, steps: Any = None, **_: Any) -> dict[str, Any]:
        """Metrics over `steps` batches, the mean loss, and the global step."""
        losses = []
        with self._session(input_fn, "eval") as (session, spec, _step):
            metrics = dict(spec.eval_metric_ops)
            if getattr(spec, "eval_metrics", None):
                function, arguments = spec.eval_metrics
                metrics = function(*arguments)
            session.run(v1.local_variables_initializer())
            for _number in range(steps):
                losses.append(session.run([spec.loss, [update for _, update in metrics.values()]])[0])
            found = {name: session.run(value) for name, (value, _) in metrics.items()}
        return {**found, "loss": np.mean(losses), "global_step": self._steps}

    def predict(self, input_fn: Any, **_: Any) -> Iterator[Any]:
        """Yields one prediction after another."""
        with self._session(input_fn, "infer") as (session, spec, _step):
            with contextlib.suppress(v1.errors.OutOfRangeError):
                while True:
                    found = session.run(spec.predictions)
                    rows = len(v1.nest.flatten(found)[0])
                    for row in range(rows):
                        yield v1.nest.map_structure(lambda array, row=row: array[row], found)

    def get_variable_value(self, name: str) -> Any:
        """The value of a variable."""
        return self._values[name]

    def get_variable_names(self) -> list[str]:
        """The names of all variables."""
        return sorted(self._values)


class IPUPipelineEstimatorSpec:
    """The stages of a model, and the function that trains them."""

    def __init__(self, mode: str, computational_stages: Any, **named: Any) -> None:
        self.mode, self.stages, self.named = mode, computational_stages, named


class IPUPipelineEstimator(IPUEstimator):
    """An estimator that runs the stages one after another, and accumulates gradients."""

    def _spec(self, features: Any, labels: Any, mode: str) -> Any:
        made = self._called(self._model_fn, mode=mode)
        values: Any = [features] if labels is None else [features, labels]
        for stage in made.stages:
            values = stage(*values)
            values = values if isinstance(values, list | tuple) else [values]
        if mode == "infer":
            return IPUEstimatorSpec(mode, values[0])
        if mode == "eval":
            metrics = made.named["eval_metrics_fn"](*values)
            loss = metrics.pop("loss")
            return IPUEstimatorSpec(mode, loss=loss, eval_metric_ops=metrics)
        output = made.named["optimizer_function"](*values)
        method = made.named.get("reduction_method", Method.SUM)
        count = made.named["gradient_accumulation_count"]
        optimizer = GradientAccumulationOptimizerV2(output.opt, count, reduction_method=method)
        return IPUEstimatorSpec(mode, loss=output.loss, train_op=optimizer.minimize(output.loss))


class IPUStrategy:
    """Stands for a strategy, and changes nothing."""

    num_replicas_in_sync = 1

    def __init__(self, *_: Any, **__: Any) -> None:
        self._plain: dict[Any, Any] = {}

    @contextlib.contextmanager
    def scope(self) -> Iterator[Any]:
        """Yields the strategy itself in place of a scope."""
        yield self

    def run(self, function: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Calls the function without XLA, which has no iterators."""
        plain = self._plain.setdefault(function, tf.function(getattr(function, "python_function", function)))
        return plain(*args, **(kwargs or {}))

    experimental_run_v2 = run


IPUStrategyV1 = IPUStrategy
