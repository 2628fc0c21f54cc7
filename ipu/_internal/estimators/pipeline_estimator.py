"""`IPUPipelineEstimator`: a model function whose steps are the micro-batches of a pipeline."""

from __future__ import annotations

import inspect
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from engine.errors import ConfigurationError
from ipu._internal.estimators.on_device import DeviceEstimator, is_averaged, with_examples
from ipu._internal.estimators.specs import EstimatorSpec, ModeKeys, check_mode
from ipu._internal.pipelining.arguments import accumulation_count
from ipu.ipu_infeed_queue import IPUInfeedQueue
from ipu.ops.pipelining_ops import pipeline

v1 = tf.compat.v1
PipelineSpecBase = namedtuple(
    "PipelineSpecBase",
    "mode computational_stages gradient_accumulation_count eval_metrics_fn optimizer_function device_mapping "
    "loss_accumulator_dtype pipeline_op_kwargs",
)

OF_THE_ESTIMATOR = frozenset(
    {"accumulate_outfeed", "accumulate_outfeed_dtype", "outfeed_loss", "infeed_queue", "outfeed_queue", "repeat_count"}
)


class IPUPipelineEstimatorSpec(PipelineSpecBase):
    """The result of a model function for an IPUPipelineEstimator (Python API, 18.12.2).

    Args:
        mode: a ModeKeys.
        computational_stages: a list of functions, each of the outputs of the one before; the first takes an element of
            the data set.
        gradient_accumulation_count: the number of micro-batches of each execution of the pipeline.
        eval_metrics_fn: a function of the outputs of the last stage, called on the host, which returns a dictionary of
            metrics and "loss"; required in mode EVAL.
        optimizer_function: a function of the outputs of the last stage, which returns an OptimizerFunctionOutput;
            required in mode TRAIN.
        device_mapping: the IPU of each stage.
        loss_accumulator_dtype: the dtype in which losses are summed; None means that of the loss.
        **pipeline_op_kwargs: further arguments of pipelining_ops.pipeline.

    Raises:
        ValueError: what the mode requires is missing, or accumulate_outfeed or an unknown argument is given.
        TypeError: a function is none.
    """

    __slots__ = ()

    def __new__(
        cls,
        mode: str,
        computational_stages: Sequence[Any],
        gradient_accumulation_count: int | None = None,
        eval_metrics_fn: Callable[..., Any] | None = None,
        optimizer_function: Callable[..., Any] | None = None,
        device_mapping: Sequence[int] | None = None,
        loss_accumulator_dtype: Any = None,
        **pipeline_op_kwargs: Any,
    ) -> IPUPipelineEstimatorSpec:
        check_mode(mode)
        depth = pipeline_op_kwargs.pop("pipeline_depth", None)
        gradient_accumulation_count = accumulation_count(gradient_accumulation_count, depth)
        required = {
            "gradient_accumulation_count": gradient_accumulation_count,
            **({"optimizer_function": optimizer_function} if mode == ModeKeys.TRAIN else {}),
            **({"eval_metrics_fn": eval_metrics_fn} if mode == ModeKeys.EVAL else {}),
        }
        for name, value in required.items():
            if value is None:
                raise ConfigurationError(f"Expected {name} in the spec of mode {mode!r}. Received: None.")
        for name, function in (("eval_metrics_fn", eval_metrics_fn), ("optimizer_function", optimizer_function)):
            if function is not None and not callable(function):
                raise TypeError(f"Expected {name} to be a function. Received: {function!r}.")
        for name in pipeline_op_kwargs:
            if name in OF_THE_ESTIMATOR:
                raise ConfigurationError(f"Expected no {name}: the estimator sets it. Received: one. Leave it out.")
            if name not in inspect.signature(pipeline).parameters:
                raise ConfigurationError(
                    f"Expected arguments of pipelining_ops.pipeline. Received: {name!r}, which it does not have."
                )
        return super().__new__(
            *(cls, mode, list(computational_stages), gradient_accumulation_count, eval_metrics_fn, optimizer_function),
            *(device_mapping, loss_accumulator_dtype, pipeline_op_kwargs),
        )


class IPUPipelineEstimator(DeviceEstimator):
    """Estimator for pipelining on IPUs (Python API, 18.12.2).

    One Session.run executes `iterations_per_loop` micro-batches, gradient_accumulation_count of them in each execution
    of the pipeline.

    Args:
        model_fn: a function, by name, of any of `features` and `labels`, which are None, `mode`, `params` and `config`,
            which returns an IPUPipelineEstimatorSpec.
        model_dir, config, params, warm_start_from: as those of IPUEstimator.

    Raises:
        ValueError, TypeError: as IPUEstimator.
    """

    def __init__(
        self,
        model_fn: Callable[..., Any],
        model_dir: Any = None,
        config: Any = None,
        params: Mapping[str, Any] | None = None,
        warm_start_from: Any = None,
    ) -> None:
        super().__init__(model_fn, model_dir, config, params, warm_start_from)

    def _pipeline_spec(self, mode: str) -> IPUPipelineEstimatorSpec:
        spec = self._call_model_fn(None, None, mode)
        if not isinstance(spec, IPUPipelineEstimatorSpec):
            raise ConfigurationError(f"Expected model_fn to return an IPUPipelineEstimatorSpec. Received: {spec!r}.")
        count, shards = spec.gradient_accumulation_count, self._ipu.num_shards
        if self._iterations_per_loop % count:
            raise ConfigurationError(
                f"Expected iterations_per_loop to be a multiple of gradient_accumulation_count, {count}. Received: "
                f"{self._iterations_per_loop}. Nearest: {-(-self._iterations_per_loop // count) * count}."
            )
        mapping = spec.device_mapping if spec.device_mapping is not None else range(len(spec.computational_stages))
        devices = len(set(tf.nest.flatten(list(mapping))))
        if not shards / 2 < devices <= shards:
            raise ConfigurationError(
                f"Expected stages on more than {shards / 2:g} and at most {shards} IPUs, the num_shards of the "
                f"IPURunConfig. Received: stages on {devices}."
            )
        return spec

    def _run(self, mode: str, infeed: IPUInfeedQueue, **arguments: Any) -> tuple[Any, Any]:
        """Runs the pipeline in a mode: returns the spec, and the rows it enqueues, [executions, ...]; `arguments` are
        the pipeline's.
        """
        outfeed = self._outfeed()
        specs: list[IPUPipelineEstimatorSpec] = []

        def net() -> Any:
            spec = self._pipeline_spec(mode)
            specs.append(spec)
            if mode == ModeKeys.TRAIN:
                arguments["optimizer_function"] = spec.optimizer_function
                arguments["accumulate_outfeed_dtype"] = spec.loss_accumulator_dtype
            executed = pipeline(
                computational_stages=spec.computational_stages,
                gradient_accumulation_count=spec.gradient_accumulation_count,
                repeat_count=self._iterations_per_loop // spec.gradient_accumulation_count,
                infeed_queue=infeed,
                outfeed_queue=outfeed,
                device_mapping=spec.device_mapping,
                **arguments,
                **spec.pipeline_op_kwargs,
            )
            if mode == ModeKeys.TRAIN:
                self._check_updates("optimizer_function")
                if self._ipu.num_replicas > 1 and not is_averaged(v1.get_default_graph()):
                    raise ConfigurationError(
                        f"Expected optimizer_function to use a CrossReplicaOptimizer with {self._ipu.num_replicas} "
                        "replicas. Received: another optimizer, with which each replica trains a model of its own."
                    )
            return executed

        return self._dequeued(outfeed, self._compiled(net)), specs[-1]

    def _train_spec(self, infeed: IPUInfeedQueue) -> EstimatorSpec:
        rows, spec = self._run(ModeKeys.TRAIN, infeed, accumulate_outfeed=True, outfeed_loss=True)
        (sums,) = tf.nest.flatten(rows)
        loss = tf.reduce_mean(tf.cast(sums, tf.float32)) / float(spec.gradient_accumulation_count)
        return self._trained(loss, [], None)

    def _eval_spec(self, infeed: IPUInfeedQueue) -> EstimatorSpec:
        rows, spec = self._run(ModeKeys.EVAL, infeed)
        tensors = with_examples(rows)
        if isinstance(tensors, dict):
            metrics = spec.eval_metrics_fn(**tensors)
        else:
            metrics = spec.eval_metrics_fn(*(tensors if isinstance(tensors, list | tuple) else [tensors]))
        if not isinstance(metrics, dict) or "loss" not in metrics:
            raise ConfigurationError(
                f'Expected eval_metrics_fn to return a dictionary with a "loss". Received: {metrics!r}.'
            )
        made = {name: m if isinstance(m, tuple) else v1.metrics.mean(m) for name, m in metrics.items()}
        return EstimatorSpec(ModeKeys.EVAL, loss=made["loss"][0], eval_metric_ops=made)

    def _predict_spec(self, infeed: IPUInfeedQueue) -> EstimatorSpec:
        rows, _ = self._run(ModeKeys.PREDICT, infeed)
        if isinstance(rows, list | tuple):
            rows = rows[0] if len(rows) == 1 else {str(k): row for k, row in enumerate(rows)}
        return EstimatorSpec(ModeKeys.PREDICT, predictions=rows)

    def _host_spec(self, features: Any, labels: Any, mode: str) -> EstimatorSpec:
        if mode != ModeKeys.PREDICT:
            raise ConfigurationError(f"Expected a pipeline to be exported for prediction. Received: mode {mode!r}.")
        spec = self._pipeline_spec(mode)
        values: Any = dict(features) if isinstance(features, dict) else [features]
        for stage in spec.computational_stages:
            if isinstance(values, dict):
                values = stage(**values)
            else:
                values = stage(*(values if isinstance(values, list | tuple) else [values]))
        if isinstance(values, list | tuple):
            values = values[0] if len(values) == 1 else {str(k): value for k, value in enumerate(values)}
        return EstimatorSpec(mode, predictions=values)
