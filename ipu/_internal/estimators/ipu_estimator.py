"""`IPUEstimator`: a model function whose steps are the iterations of a loop on the device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from engine.errors import ConfigurationError
from ipu import loops
from ipu._internal.compiler.collectives import cross_replica_mean
from ipu._internal.estimators.device_metrics import kept, value_after
from ipu._internal.estimators.on_device import DeviceEstimator, is_averaged, with_examples
from ipu._internal.estimators.specs import REQUIRED, EstimatorSpec, IPUEstimatorSpec, ModeKeys
from ipu.ipu_infeed_queue import IPUInfeedQueue
from ipu.ipu_outfeed_queue import IPUOutfeedMode

v1 = tf.compat.v1


class IPUEstimator(DeviceEstimator):
    """Estimator with IPU support (Python API, 18.12.1).

    One Session.run executes `iterations_per_loop` steps on the device, on each replica with a batch of its own.

    Args:
        model_fn: a model function of tf.estimator.Estimator, which returns an IPUEstimatorSpec or an EstimatorSpec.
            With several replicas it uses a CrossReplicaOptimizer.
        model_dir: the folder of checkpoints and summaries.
        config: a RunConfig of ipu_run_config.
        params: a dictionary for `model_fn` and the input functions.
        warm_start_from: a checkpoint, its folder, a SavedModel, or tf.estimator.WarmStartSettings.
        train_batch_size, eval_batch_size, predict_batch_size: the global batch sizes of training, evaluation and
            prediction; params["batch_size"] of the input function is the batch size of a replica.

    Raises:
        ValueError: a batch size is no multiple of the number of replicas, and in the cases of tf.estimator.Estimator.
        TypeError: `config` is no RunConfig.
    """

    def __init__(
        self,
        model_fn: Callable[..., Any],
        model_dir: Any = None,
        config: Any = None,
        params: Mapping[str, Any] | None = None,
        warm_start_from: Any = None,
        train_batch_size: int | None = None,
        eval_batch_size: int | None = None,
        predict_batch_size: int | None = None,
    ) -> None:
        sizes = {ModeKeys.TRAIN: train_batch_size, ModeKeys.EVAL: eval_batch_size, ModeKeys.PREDICT: predict_batch_size}
        self._batch_sizes = {mode: size for mode, size in sizes.items() if size is not None}
        if self._batch_sizes and "batch_size" in (params or {}):
            raise ConfigurationError(
                "Expected no batch_size in params with train_batch_size, eval_batch_size or predict_batch_size. "
                "Received: both."
            )
        super().__init__(model_fn, model_dir, config, params, warm_start_from)
        for mode, size in self._batch_sizes.items():
            replicas = self._replicas(mode)
            if size < 1 or size % replicas:
                raise ConfigurationError(
                    f"Expected the batch size of mode {mode!r} to be a multiple of the number of replicas, {replicas}. "
                    f"Received: {size}. Nearest: {max(-(-size // replicas), 1) * replicas}."
                )

    def _local_params(self, mode: str) -> dict[str, Any]:
        params = self.params
        if mode in self._batch_sizes:
            params["batch_size"] = self._batch_sizes[mode] // self._replicas(mode)
        return params

    def _replicas(self, mode: str) -> int:
        """The number of replicas of all workers of a run."""
        return int(self._ipu.num_replicas) * (self._config.workers if mode == ModeKeys.TRAIN else 1)

    def _host_spec(self, features: Any, labels: Any, mode: str) -> EstimatorSpec:
        spec = self._call_model_fn(features, labels, mode)
        if isinstance(spec, IPUEstimatorSpec):
            metrics = _computed(*spec.eval_metrics) if spec.eval_metrics else spec.eval_metric_ops
            return EstimatorSpec(mode, spec.predictions, spec.loss, spec.train_op, metrics)
        return spec

    def _device_spec(self, element: Any, named: Any, mode: str) -> Any:
        """The model for an element of the infeed, as the body of a loop receives it."""
        features, labels = (named, None) if named else element if len(element) == 2 else (element[0], None)
        if len(element) > 2:
            raise ConfigurationError(
                f"Expected the data set's elements to be features, or (features, labels). Received: {len(element)}."
            )
        if mode == ModeKeys.PREDICT:
            labels = None
        spec = self._call_model_fn(features, labels, mode)
        if not isinstance(spec, EstimatorSpec | IPUEstimatorSpec):
            raise ConfigurationError(f"Expected model_fn to return an IPUEstimatorSpec. Received: {spec!r}.")
        for name in REQUIRED[mode]:
            if getattr(spec, name) is None:
                raise ConfigurationError(f"Expected {name} in the spec of mode {mode!r}. Received: None.")
        scaffold = getattr(spec, "scaffold", None)
        if scaffold is not None:
            raise ConfigurationError(
                "Expected a spec without scaffold, as model_fn is traced for the device. Received: "
                f"{scaffold!r}. Leave it out, and use hooks in its place."
            )
        return spec

    def _loop(self, mode: str, infeed: IPUInfeedQueue, step: Callable[[Any], Any]) -> tuple[Any, Any]:
        """The mean loss of a loop over steps, and the spec of a step; `step` adds operations for the spec."""
        specs: list[Any] = []

        def body(total: tf.Tensor, *element: Any, **named: Any) -> tf.Tensor:
            spec = self._device_spec(element, named, mode)
            specs.append(spec)
            with tf.control_dependencies([*step(spec)]):
                return total if spec.loss is None else total + tf.cast(spec.loss, tf.float32)

        def net() -> tf.Tensor:
            total = loops.repeat(self._iterations_per_loop, body, [0.0], infeed)
            if self._ipu.num_replicas > 1:
                total = cross_replica_mean(total)
            return total / float(self._iterations_per_loop)

        loss, _ = self._compiled(net)
        return loss, specs[-1]

    def _train_spec(self, infeed: IPUInfeedQueue) -> EstimatorSpec:
        outfeed = self._outfeed(IPUOutfeedMode.LAST)

        def step(spec: Any) -> list[Any]:
            self._check_updates("model_fn")
            call = getattr(spec, "host_call", None)
            if call is not None:
                self._check_host_call()
                return [spec.train_op, *([outfeed.enqueue(list(call[1]))] if call[1] else [])]
            if self._ipu.num_replicas > 1 and not is_averaged(v1.get_default_graph()):
                raise ConfigurationError(
                    f"Expected model_fn to use a CrossReplicaOptimizer with {self._ipu.num_replicas} replicas. "
                    "Received: another optimizer, with which each replica trains a model of its own."
                )
            return [spec.train_op]

        loss, spec = self._loop(ModeKeys.TRAIN, infeed, step)
        called = []
        if getattr(spec, "host_call", None) is not None:
            on_host = self._dequeued(outfeed, loss, is_last=True) if spec.host_call[1] else []
            before = len(v1.get_default_graph().get_operations())
            with tf.control_dependencies([] if on_host else [loss]):
                called = [spec.host_call[0](*on_host)]
            self._check_updates("host_call", first=before)
        return self._trained(loss, called, (*spec.training_hooks, *getattr(spec, "training_chief_hooks", ())))

    def _check_host_call(self) -> None:
        if self._iterations_per_loop > 1 or self._ipu.num_replicas > 1:
            raise ConfigurationError(
                "Expected iterations_per_loop and num_replicas of 1 with a host_call. Received: "
                f"{self._iterations_per_loop} and {self._ipu.num_replicas}."
            )

    def _eval_spec(self, infeed: IPUInfeedQueue) -> EstimatorSpec:
        on_host, on_device = self._outfeed(), self._outfeed(IPUOutfeedMode.LAST)

        def step(spec: Any) -> list[Any]:
            metrics = getattr(spec, "eval_metrics", None)
            if metrics is None and not spec.eval_metric_ops:
                raise ConfigurationError(
                    "Expected eval_metric_ops or eval_metrics in the spec of mode 'eval'. Received: neither."
                )
            if metrics is not None:
                return [on_host.enqueue(metrics[1] if isinstance(metrics[1], dict) else list(metrics[1]))]
            metrics = spec.eval_metric_ops.items()
            return [on_device.enqueue({name: value_after(update, value) for name, (value, update) in metrics})]

        loss, spec = self._loop(ModeKeys.EVAL, infeed, step)
        metrics = getattr(spec, "eval_metrics", None)
        if metrics is not None:
            made = _computed(metrics[0], with_examples(self._dequeued(on_host, loss)))
        else:
            latest = self._dequeued(on_device, loss, is_last=True)
            made = {name: kept(value, self._ipu.num_replicas) for name, value in latest.items()}
        if "loss" in made:
            raise ConfigurationError(
                "Expected metrics of other names than 'loss', under which evaluate returns the mean loss. Received: a "
                "metric of that name. Rename it."
            )
        return EstimatorSpec(ModeKeys.EVAL, loss=loss, eval_metric_ops=made, evaluation_hooks=spec.evaluation_hooks)

    def _predict_spec(self, infeed: IPUInfeedQueue) -> EstimatorSpec:
        outfeed = self._outfeed()
        loss, spec = self._loop(ModeKeys.PREDICT, infeed, lambda spec: [outfeed.enqueue(spec.predictions)])
        predictions = self._dequeued(outfeed, loss)
        if not isinstance(spec.predictions, dict):
            (predictions,) = tf.nest.flatten(predictions)
        return EstimatorSpec(ModeKeys.PREDICT, predictions=predictions, prediction_hooks=spec.prediction_hooks)


def _computed(function: Callable[..., Any], tensors: Any) -> Any:
    return function(**tensors) if isinstance(tensors, dict) else function(*tensors)
