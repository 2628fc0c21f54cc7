"""Pipelining operators: the public names of `tensorflow.python.ipu.pipelining_ops`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from engine.errors import ConfigurationError
from engine.partition.schedule import Row
from engine.partition.schedule_table import ScheduleRows
from ipu._internal.compiler.marks import AccumulatorType
from ipu._internal.compiler.traced_pipelines import latest
from ipu._internal.compiler.variables import tracing
from ipu._internal.names.namespace import public_names
from ipu._internal.operators.gradient_capture import GradientCaptureContext
from ipu._internal.pipelining.arguments import checked_arguments
from ipu._internal.pipelining.captures import check_captures
from ipu._internal.pipelining.checkpoints import checkpointed
from ipu._internal.pipelining.errors import PipelineRuntimeError, PipelineTypeError
from ipu._internal.pipelining.execution import run_pipeline
from ipu._internal.pipelining.options import PipelineSchedule, RecomputationMode
from ipu._internal.pipelining.stage_options import PipelineStageOptions
from ipu._internal.types import Function, Nest, Optimizer, TensorLike, Variable
from ipu.ipu_infeed_queue import IPUInfeedQueue
from ipu.ipu_outfeed_queue import IPUOutfeedQueue

__all__ = [
    "OptimizerFunctionOutput",
    "PipelineSchedule",
    "PipelineStageOptions",
    "RecomputationMode",
    "get_pipeline_schedule",
    "pipeline",
    "recomputation_checkpoint",
]
__getattr__, __dir__ = public_names(__name__, __all__)


class OptimizerFunctionOutput:
    """Result of an `optimizer_function` of a pipeline (Python API, 18.14.6).

    Args:
        opt: a Keras optimizer, or one of TensorFlow 1 (tf.compat.v1.train.Optimizer). One of Keras that scales losses
            scales this one, unless a stage has scaled it by `opt`.
        loss: the tensor whose gradients are computed.
        compute_gradients_args: further positional arguments of compute_gradients of a TensorFlow 1 optimizer.
        compute_gradients_kwargs: its further keyword arguments.
        apply_gradients_args: further positional arguments of apply_gradients, after the gradients and variables.
        apply_gradients_kwargs: its further keyword arguments.
        variables: with a Keras optimizer, the variables to train; None means all trainable ones that the stages use.
        tape: with a Keras optimizer, a tf.GradientTape for the gradients of all variables that it watches.
        gradient_capture_context: an `ipu.eager.backprop.GradientCaptureContext`, which gets the gradients that stages
            capture with `capture_upstream_gradients`. A GradientCaptureTape as `tape` has one itself.
        captured_gradient_outfeed: an IPUOutfeedQueue for captured gradients by tag: once for each update, reduced over
            the micro-batches as gradients of variables are.

    Raises:
        TypeError: `opt` is no optimizer, `loss` no tensor, `tape` no tape, or the context or queue of another class.
        ValueError: compute_gradients arguments with a Keras optimizer; `variables` or `tape` with another optimizer;
            both `variables` and `tape`; a GradientCaptureTape beside a context; or a queue without either.
    """

    def __init__(
        self,
        opt: Optimizer,
        loss: TensorLike,
        compute_gradients_args: tuple[Any, ...] | None = None,
        compute_gradients_kwargs: dict[str, Any] | None = None,
        apply_gradients_args: tuple[Any, ...] | None = None,
        apply_gradients_kwargs: dict[str, Any] | None = None,
        variables: Iterable[Variable] | None = None,
        tape: tf.GradientTape | None = None,
        gradient_capture_context: GradientCaptureContext | None = None,
        captured_gradient_outfeed: IPUOutfeedQueue | None = None,
    ) -> None:
        is_first = isinstance(opt, tf.compat.v1.train.Optimizer)
        if not is_first and not (hasattr(opt, "apply_gradients") and hasattr(opt, "get_config")):
            raise PipelineTypeError(
                f"Expected opt to be an optimizer of Keras or of tf.compat.v1.train. Received: {opt!r}."
            )
        if not tf.is_tensor(loss):
            raise PipelineTypeError(f"Expected loss to be a tensor. Received: {loss!r}.")
        if not is_first and (compute_gradients_args or compute_gradients_kwargs):
            raise ConfigurationError(
                "Expected compute_gradients_args and compute_gradients_kwargs only with a TensorFlow 1 optimizer. "
                f"Received: them with {type(opt).__name__}. Leave them out."
            )
        for what, given in (("variables", variables), ("tape", tape)):
            if is_first and given is not None:
                raise ConfigurationError(
                    f"Expected {what} only with a Keras optimizer. Received: {what} with {type(opt).__name__}. Pass "
                    "compute_gradients_kwargs={'var_list': ...}."
                )
        if variables is not None and tape is not None:
            raise ConfigurationError("Expected one of variables and tape. Received: both. Leave one out.")
        if not (tape is None or isinstance(tape, tf.GradientTape)):
            raise PipelineTypeError(f"Expected tape to be a tf.GradientTape. Received: {tape!r}.")
        check_captures(tape, gradient_capture_context, captured_gradient_outfeed)
        self.gradient_capture_context = gradient_capture_context
        self.captured_gradient_outfeed = captured_gradient_outfeed
        self.opt = opt
        self.loss = loss
        self.compute_gradients_args = tuple(compute_gradients_args or ())
        self.compute_gradients_kwargs = dict(compute_gradients_kwargs or {})
        self.apply_gradients_args = tuple(apply_gradients_args or ())
        self.apply_gradients_kwargs = dict(apply_gradients_kwargs or {})
        self.variables = None if variables is None else list(variables)
        self.tape = tape


def pipeline(
    computational_stages: Sequence[Function],
    gradient_accumulation_count: TensorLike | None = None,
    gradient_accumulation_dtype: AccumulatorType = None,
    repeat_count: int = 1,
    batch_serialization_iterations: int = 1,
    inputs: Nest = None,
    infeed_queue: IPUInfeedQueue | None = None,
    outfeed_queue: IPUOutfeedQueue | None = None,
    optimizer_function: Callable[..., OptimizerFunctionOutput] | None = None,
    device_mapping: object = None,
    pipeline_schedule: PipelineSchedule | None = None,
    recomputation_mode: RecomputationMode | None = None,
    forward_propagation_stages_poplar_options: object = None,
    backward_propagation_stages_poplar_options: object = None,
    weight_update_poplar_options: PipelineStageOptions | None = None,
    offload_weight_update_variables: bool | None = None,
    replicated_optimizer_state_sharding: bool = False,
    offload_activations: bool | None = None,
    offload_gradient_accumulation_buffers: bool | None = None,
    replicated_weight_sharding: bool | None = None,
    offload_weights: bool | None = None,
    continuous_weight_updates: bool = False,
    outfeed_loss: bool = False,
    accumulate_outfeed: bool = False,
    accumulate_outfeed_dtype: object = None,
    outfeed_mask: object = None,
    reduction_method: object = "sum",
    name: str | None = None,
    gradient_accumulation_for_captured_grads: bool = True,
    pipeline_depth: object = None,
) -> tf.Operation:
    """Runs stages one after the other on many micro-batches, and updates variables once (Python API, 18.14.6).

    The first stage takes `inputs`, then an element of the infeed: a dict by name, a tuple as several arguments. Each
    later stage takes the results of the stage before: a list or tuple as several arguments, anything else as one. A
    stage that is a list of functions runs them concurrently on the same arguments; their outputs are concatenated.

    Args:
        computational_stages: a list of at least two functions, or lists of functions.
        gradient_accumulation_count: the number of micro-batches whose gradients are accumulated: an integer that the
            schedule allows, or an integer tensor.
        gradient_accumulation_dtype: the dtype of accumulated gradients, or a function of the variable that returns
            it; None is the dtype of the gradient.
        repeat_count: the number of repetitions of micro-batches and update.
        batch_serialization_iterations: a factor on the number of micro-batches, for Sequential pipelines.
        inputs: tensors for the first stage, the same for all micro-batches.
        infeed_queue: an IPUInfeedQueue; one element for each micro-batch.
        outfeed_queue: an IPUOutfeedQueue for the results of the last stage; needed if it returns tensors.
        optimizer_function: takes the last stage's results, returns an OptimizerFunctionOutput. None: no training.
        device_mapping: the IPU of each stage, a list for concurrent functions; stage k is on IPU k otherwise.
        pipeline_schedule: Grouped if None.
        recomputation_mode: Auto if None; it has an effect if IPUConfig.allow_recompute is set.
        forward_propagation_stages_poplar_options: None, or a PipelineStageOptions for each stage, for the plans of its
            operations in the cost report, also of recomputations that are rows of the schedule.
        backward_propagation_stages_poplar_options: the same for backward passes.
        weight_update_poplar_options: None, or a PipelineStageOptions for the updates of all stages.
        offload_weight_update_variables: whether the optimizer's state is stored in remote memory; None means True where
            there are remote buffers. It affects bytes and cycles in the cost report, but no results.
        offload_activations, offload_gradient_accumulation_buffers, offload_weights: likewise for activations,
            accumulators of gradients, and weights; None means False.
        replicated_optimizer_state_sharding, replicated_weight_sharding: whether each replica stores only a part of the
            optimizer's state, or of the weights, that is in remote memory; likewise. None means False.
        continuous_weight_updates: must be False.
        outfeed_loss: enqueues the loss instead of the last stage's results.
        accumulate_outfeed: enqueues the sums over the micro-batches, once per repetition.
        accumulate_outfeed_dtype: the dtype of those sums, or a function that returns it for a `tf.TensorSpec`, the
            shape, dtype and name of an output: `loss` with `outfeed_loss`, its key in a dictionary, or `output_<k>` for
            the last stage's result at index k. None is the dtype of the output.
        outfeed_mask: a bool for each output of the last stage; outputs with True are not enqueued.
        reduction_method: the reduction of gradients, "sum", "mean" or "running_mean".
        name: a name for the operations.
        gradient_accumulation_for_captured_grads: must be True: captured gradients are reduced over micro-batches.
        pipeline_depth: the name of the first releases for `gradient_accumulation_count`.

    Returns:
        An operation that runs the pipeline.

    Raises:
        ValueError: arguments out of range or that contradict each other, a count that the schedule cannot take.
        TypeError: arguments of the wrong type.
        NotImplementedError: a combination that pipelines do not support.
        RuntimeError: called outside of a function that runs on the IPU, or nothing to train.
    """
    arguments = dict(locals())
    arguments.pop("name")
    return run_pipeline(checked_arguments(arguments), OptimizerFunctionOutput, name or "pipeline")


def get_pipeline_schedule(number: int = 0) -> list[Row]:
    """Returns the schedule that the engine built for a pipeline.

    The pipeline is in the function that was compiled last, of those that call `pipeline()`.

    Args:
        number: the index of the pipeline, from 0, in the order in which the function calls them.

    Returns:
        The rows (slot, ipu, stage, kind, micro_batch) of one of the `repeat_count` repetitions, on one replica.

    Raises:
        RuntimeError: the function compiled last has no pipeline of that number. A pipeline whose
            gradient_accumulation_count is a tensor has no schedule.
    """
    if not 0 <= number < len(latest):
        raise PipelineRuntimeError(
            f"Expected the number of a pipeline in the function that was compiled last. Received: {number}, of "
            f"{len(latest)} pipelines. Run a function that calls pipeline() with IPUStrategy.run first."
        )
    return ScheduleRows.of(latest[number].schedule)


def recomputation_checkpoint(tensors: Nest, name: str | None = None) -> Any:
    """Keeps tensors from being recomputed in backward passes (Python API, 18.14.6).

    In a stage of a pipeline, of `pipeline()` or of a Keras model, with IPUConfig.allow_recompute and
    RecomputationMode.RecomputeAndBackpropagateInterleaved (which is Auto's choice for PipelineSchedule.Sequential), the
    backward pass recomputes from these tensors on. They are stored like other activations, and earlier operations of
    the stage are recomputed for their own gradients only: the memory of the cost report shows both. With
    RecomputeThenBackpropagate it has no effect. In steps without a pipeline, with IPUConfig.allow_recompute, the
    backward pass recomputes the activations before the last of these tensors, from one to the next. Results are the
    same in any case.

    Args:
        tensors: a tensor, or a structure of tensors.
        name: optional op name.

    Returns:
        The same tensors in the same structure, unchanged.
    """
    with tf.name_scope(name or "recomputation_checkpoint"):
        return tf.nest.map_structure(checkpointed if tracing() else tf.identity, tensors)
