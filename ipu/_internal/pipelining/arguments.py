"""Checks the arguments of `pipeline()`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from engine.errors import ConfigurationError, StepCountError, UnsupportedOperation
from engine.integers import checked_integer, is_integer
from engine.partition.accumulation import Reduction
from engine.partition.schedule import Devices
from engine.partition.schedule_checks import check_count, check_pipeline
from engine.partition.stage_options import StageOptions
from engine.partition.storage import Storage
from ipu._internal.compiler.marks import AccumulatorType, check_accumulator_type
from ipu._internal.compiler.storage import checked_storage, placed
from ipu._internal.pipelining.errors import PipelineCountError, PipelineTypeError
from ipu._internal.pipelining.options import (
    PipelineSchedule,
    RecomputationMode,
    check_stage_list,
    checked_device_mapping,
    checked_recomputation,
    checked_reduction,
    checked_schedule,
    kind_of,
)
from ipu._internal.pipelining.stage_options import stage_options_of
from ipu._internal.pipelining.sums import checked_sum_dtype, names_of, summed_as
from ipu._internal.queues.infeed_queue import IPUInfeedQueue
from ipu._internal.queues.outfeed_queue import IPUOutfeedMode, IPUOutfeedQueue
from ipu._internal.types import Nest, TensorLike

logger = logging.getLogger("ipu")
MAXIMAL_COUNT = 2**31 - 1
Stage = Sequence[Callable[..., Any]]
"""The functions of a stage: several, if they run concurrently."""


@dataclass(frozen=True)
class PipelineArguments:
    """Checked arguments. `count` is a number, or an integer tensor; `devices` has a tuple for each stage."""

    stages: tuple[Stage, ...]
    devices: Devices
    count: Any
    repeat_count: int
    batch_serialization_iterations: int
    schedule: PipelineSchedule
    recomputation_mode: RecomputationMode
    reduction: Reduction
    accumulator_type: AccumulatorType
    inputs: list[Any]
    infeed_queue: IPUInfeedQueue | None
    outfeed_queue: IPUOutfeedQueue | None
    optimizer_function: Callable[..., Any] | None
    outfeed_loss: bool
    outfeed_mask: list[bool] | None
    accumulate_outfeed: bool
    accumulate_outfeed_dtype: Any
    storage: Storage
    options: StageOptions

    @property
    def training(self) -> bool:
        """Whether there is an optimizer."""
        return self.optimizer_function is not None

    def to_sum(self, outputs: Nest) -> list[tf.Tensor]:
        """The tensors for the outfeed that are summed over micro-batches, in `accumulate_outfeed_dtype`."""
        tensors = [tf.convert_to_tensor(each) for each in tf.nest.flatten(outputs)]
        names = ["loss"] if self.outfeed_loss else names_of(outputs, self._positions())
        asked = self.accumulate_outfeed_dtype
        return [summed_as(tensor, asked, name) for tensor, name in zip(tensors, names, strict=True)]

    def _positions(self) -> list[int] | None:
        """Indices of the last stage's outputs that go to the outfeed; None for all."""
        mask = self.outfeed_mask
        return None if mask is None else [position for position, left_out in enumerate(mask) if not left_out]


def accumulation_count(count: Any, depth: Any) -> Any:
    """The number of micro-batches, which is called the pipeline's depth in the first releases.

    Raises ConfigurationError for both.
    """
    if count is not None and depth is not None:
        raise ConfigurationError(
            "Expected gradient_accumulation_count or pipeline_depth, its older name. Received: both. Leave one out."
        )
    return depth if count is None else count


def checked_arguments(arguments: dict[str, Any]) -> PipelineArguments:
    """Checks all arguments of `pipeline()`, by name; the first wrong one raises.

    Raises ConfigurationError (ValueError), PipelineTypeError (also TypeError), UnsupportedOperation (also
    NotImplementedError) and PipelineCountError.
    """
    count = _checked_count(accumulation_count(arguments["gradient_accumulation_count"], arguments["pipeline_depth"]))
    training = arguments["optimizer_function"] is not None
    reduction = checked_reduction(arguments["reduction_method"]) if training else "sum"
    serialization = checked_integer("batch_serialization_iterations", arguments["batch_serialization_iterations"])
    if reduction != "sum" and serialization != 1:
        raise ConfigurationError(
            f"Expected reduction_method SUM with batch_serialization_iterations. Received: {reduction!r} with "
            f"batch_serialization_iterations={serialization}. Use SUM and scale the loss."
        )
    if arguments["continuous_weight_updates"]:
        raise UnsupportedOperation(
            "Expected continuous_weight_updates=False: TensorFlow for IPUs never had it. Received: True. Leave it out."
        )
    if not arguments["gradient_accumulation_for_captured_grads"]:
        raise UnsupportedOperation(
            "Expected gradient_accumulation_for_captured_grads=True: captured gradients are reduced over the "
            "micro-batches of an update. Received: False. Return what you need of each micro-batch from the last stage."
        )
    schedule = _schedule(arguments["pipeline_schedule"], serialization)
    stages, devices = _checked_stages(arguments["computational_stages"], arguments["device_mapping"], serialization)
    check_pipeline(kind_of(schedule), len(stages), devices, training=training)
    _check_queues(arguments["infeed_queue"], arguments["outfeed_queue"])
    options = stage_options_of(arguments, len(stages))
    checked_recomputation(arguments["recomputation_mode"], schedule)
    _check_outfeed(arguments, training)
    storage = placed(checked_storage(arguments), accumulates=training)
    checked_sum_dtype(arguments["accumulate_outfeed_dtype"])
    dtype = arguments["gradient_accumulation_dtype"]
    check_accumulator_type(dtype)
    if not tf.is_tensor(count):
        check_schedule_takes(count, schedule, devices, training)
    mask = arguments["outfeed_mask"]
    return PipelineArguments(
        stages,
        devices,
        count,
        checked_integer("repeat_count", arguments["repeat_count"]),
        serialization,
        schedule,
        arguments["recomputation_mode"] or RecomputationMode.Auto,
        reduction,
        dtype,
        _inputs(arguments["inputs"]),
        arguments["infeed_queue"],
        arguments["outfeed_queue"],
        arguments["optimizer_function"],
        bool(arguments["outfeed_loss"]),
        None if mask is None else [bool(element) for element in mask],
        bool(arguments["accumulate_outfeed"]),
        arguments["accumulate_outfeed_dtype"],
        storage,
        options,
    )


def check_schedule_takes(count: int, schedule: PipelineSchedule, devices: Devices, training: bool) -> None:
    """Raises PipelineCountError, a FailedPreconditionError, for a gradient_accumulation_count that `schedule` lacks."""
    try:
        check_count(kind_of(schedule), devices, count, training=training, option="gradient_accumulation_count")
    except StepCountError as error:
        raise PipelineCountError(str(error)) from error


def _inputs(inputs: Nest) -> list[Any]:
    """The inputs as a list, with a warning for a variable: all micro-batches and repetitions get its initial value."""
    given = [] if inputs is None else list(inputs) if isinstance(inputs, list | tuple) else [inputs]
    for value in given:
        if isinstance(value, tf.Variable):
            logger.warning(
                "The variable %r is in the inputs of a pipeline, which takes its value as it is before the first "
                "micro-batch, and gives it no gradient. Use the variable in a stage instead.",
                value.name,
            )
    return given


def _checked_count(count: TensorLike) -> Any:
    if count is None:
        raise ConfigurationError(
            "Expected gradient_accumulation_count to be specified. Received: None. Give the number of times that each "
            "stage is executed for one update."
        )
    if tf.is_tensor(count):
        static = tf.get_static_value(count)
        if static is None:
            return count
        count = static
    if getattr(count, "shape", ()) == () and hasattr(count, "item"):
        count = count.item()
    if not is_integer(count):
        raise PipelineTypeError(f"Expected gradient_accumulation_count to be an integer. Received: {count!r}.")
    return checked_integer("gradient_accumulation_count", count, 1, MAXIMAL_COUNT)


def _schedule(schedule: object, serialization: int) -> PipelineSchedule:
    sequential = PipelineSchedule.Sequential
    chosen = checked_schedule(schedule, sequential if serialization > 1 else PipelineSchedule.Grouped)
    if serialization > 1 and chosen != sequential:
        raise UnsupportedOperation(
            f"Expected PipelineSchedule.Sequential with batch_serialization_iterations > 1. Received: {chosen.name}."
        )
    return chosen


def _checked_stages(stages: Nest, mapping: Nest, serialization: int) -> tuple[tuple[Stage, ...], Devices]:
    """The functions and the devices of each stage; those of concurrent functions are lists in both arguments."""
    check_stage_list(stages, "Call a single function without pipeline().")
    functions: list[Stage] = [list(stage) if isinstance(stage, list | tuple) else [stage] for stage in stages]
    for number, of_stage in enumerate(functions):
        wrong = [function for function in of_stage if not callable(function)]
        if wrong or not of_stage:
            raise PipelineTypeError(
                f"Expected stage {number} to be a function, or a list of functions that run concurrently. Received: "
                f"{stages[number]!r}."
            )
    if mapping is not None and not isinstance(mapping, list | tuple):
        raise PipelineTypeError(f"Expected device_mapping to be a list or tuple. Received: {mapping!r}.")
    if mapping is None:
        mapping = [0] * len(stages) if serialization > 1 else _default_mapping(functions)
    checked_device_mapping([0] * len(mapping), len(stages))
    devices = []
    for number, (of_stage, of_mapping) in enumerate(zip(functions, mapping, strict=True)):
        of_devices = list(of_mapping) if isinstance(of_mapping, list | tuple) else [of_mapping]
        if len(of_devices) != len(of_stage):
            raise ConfigurationError(
                f"Each stage must be mapped to an IPU. Expected element {number} of device_mapping to have as many "
                f"IPUs as the stage has concurrent functions, {len(of_stage)}. Received: {of_mapping!r}."
            )
        devices.append(checked_device_mapping(of_devices, len(of_stage)))
    flat = {device for of_stage in devices for device in of_stage}
    if serialization > 1 and len(flat) > 1:
        raise UnsupportedOperation(
            f"Expected all stages on one IPU with batch_serialization_iterations > 1. Received: device_mapping="
            f"{list(mapping)}. Leave device_mapping out."
        )
    return tuple(functions), tuple(devices)


def _default_mapping(functions: list[Stage]) -> list[Any]:
    """Stage k on IPU k; concurrent functions each on their own IPU."""
    mapping: list[Any] = []
    device = 0
    for of_stage in functions:
        mapping.append(list(range(device, device + len(of_stage))))
        device += len(of_stage)
    return mapping


def _check_queues(infeed_queue: object, outfeed_queue: object) -> None:
    for name, queue, kind in (
        ("infeed_queue", infeed_queue, IPUInfeedQueue),
        ("outfeed_queue", outfeed_queue, IPUOutfeedQueue),
    ):
        if queue is not None and not isinstance(queue, kind):
            raise PipelineTypeError(f"Expected {name} to be an {kind.__name__}. Received: {queue!r}.")


def _check_outfeed(arguments: dict[str, Any], training: bool) -> None:
    mask, loss, queue = arguments["outfeed_mask"], arguments["outfeed_loss"], arguments["outfeed_queue"]
    for name, value in (("outfeed_mask", mask), ("outfeed_loss", loss)):
        if value and not training:
            raise ConfigurationError(f"Expected {name} only with an optimizer_function. Received: {value!r} without.")
    if mask and loss:
        raise ConfigurationError("Expected one of outfeed_mask and outfeed_loss. Received: both. Leave one out.")
    if loss and queue is None:
        raise ConfigurationError("Expected an outfeed_queue with outfeed_loss=True. Received: none. Pass one.")
    if not arguments["accumulate_outfeed"]:
        return
    if queue is None:
        raise ConfigurationError("Expected an outfeed_queue with accumulate_outfeed=True. Received: none. Pass one.")
    if queue._outfeed_mode is not IPUOutfeedMode.ALL:
        raise ConfigurationError(
            f"Expected an outfeed_queue of IPUOutfeedMode.ALL with accumulate_outfeed=True. Received: "
            f"{queue._outfeed_mode}."
        )
