"""`set_pipelining_options`: accumulation of a model with stages, their IPUs and their schedule."""

from __future__ import annotations

import inspect
import logging
import operator
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

from engine.errors import ConfigurationError
from engine.partition.schedule import ScheduleKind, devices_of
from engine.partition.schedule_checks import check_pipeline
from engine.partition.stage_options import StageOptions
from engine.partition.storage import Storage
from ipu._internal.compiler.marks import AccumulatorType, check_accumulator_type
from ipu._internal.compiler.storage import checked_storage, placed
from ipu._internal.config.system import current_system
from ipu._internal.pipelining.options import (
    REDUCTIONS,
    RecomputationMode,
    checked_device_mapping,
    checked_recomputation,
    checked_reduction,
    checked_schedule,
    kind_of,
)
from ipu._internal.pipelining.stage_options import stage_options_of
from ipu._internal.pipelining.sums import checked_sum_dtype
from keras_ext.accumulation_options import REDUCTION, checked_steps
from keras_ext.extension import Extension, check_names, option, options_of
from keras_ext.pipelining.assigned import ASSIGNMENT, checked_stages, is_pipelined
from keras_ext.pipelining.assignments import flat_arguments
from keras_ext.pipelining.calls import Calls, LayerCall, calls_of
from keras_ext.pipelining.graphs import graphs_of
from keras_ext.pipelining.stage_trees import StageTree, of_leaves
from keras_ext.pipelining.subclasses import subclass_graph
from keras_ext.types import KerasModel

logger = logging.getLogger("ipu")
_noticed: weakref.WeakSet[Any] = weakref.WeakSet()
STEPS = "pipelining_gradient_accumulation_steps_per_replica"
DEVICES = "pipelining_device_mapping"
ACCUMULATE_OUTFEED = "pipelining_accumulate_outfeed"
ARGUMENTS = "pipelining_kwargs"
OPTIONS = (ASSIGNMENT, STEPS, DEVICES, ACCUMULATE_OUTFEED, ARGUMENTS)
KEPT = {training: f"_ipu_pipelining_{training}" for training in (True, False)}
"""The attributes in which a model caches the last result of `pipelining_of`."""
SET_BY_KERAS = {
    **dict.fromkeys(("gradient_accumulation_count", "pipeline_depth"), "give gradient_accumulation_steps_per_replica"),
    "repeat_count": "it follows from steps_per_execution",
    "batch_serialization_iterations": "Keras models take whole batches",
    "inputs": "Keras feeds the model",
    "infeed_queue": "use set_infeed_queue_options()",
    "outfeed_queue": "use set_outfeed_queue_options()",
    "computational_stages": "use set_pipeline_stage_assignment()",
    "optimizer_function": "the optimizer is that of compile()",
    "outfeed_loss": "Keras returns the loss",
    "outfeed_mask": "Keras returns loss and metrics",
    "reduction_method": "give gradient_accumulation_reduction_method",
}
"""Arguments of `pipeline()` that a Keras model fills in, and their replacements."""


@cache
def pipeline_arguments() -> frozenset[str]:
    """Arguments that `set_pipelining_options` and `pipeline()` share."""
    from ipu.ops.pipelining_ops import pipeline  # with all that it runs, which other models do not need

    return frozenset(inspect.signature(pipeline).parameters) - set(SET_BY_KERAS)


@dataclass(frozen=True)
class ModelPipelining:
    """A model's pipelining: the stage of each call of a layer, the IPU of each stage, schedule and options.

    `recomputation_mode` is None where activations are kept. `storage` moves data on the chip and `options` set its
    libraries; neither changes numbers.
    """

    stages: tuple[StageTree, ...]
    devices: tuple[int, ...]
    schedule: ScheduleKind
    recomputation_mode: str | None
    accumulate_outfeed: bool
    storage: Storage
    outfeed_sum_dtype: Any
    options: StageOptions = StageOptions()

    @property
    def ipus(self) -> int:
        """The IPUs that a replica takes: a power of two, as they are wired."""
        shards = max(self.devices) + 1
        return 1 << (shards - 1).bit_length()


class _Kept:
    """A cached result, and the objects it depends on; opaque to Keras' search for layers in a model's attributes."""

    def __init__(self, depends_on: list[Any], pipelining: ModelPipelining | None) -> None:
        self._depends_on, self.pipelining = depends_on, pipelining

    def is_of(self, objects: list[Any]) -> bool:
        """Whether the result depends on exactly these objects."""
        return len(objects) == len(self._depends_on) and all(map(operator.is_, objects, self._depends_on))


class PipeliningOptions(Extension):
    """The methods about pipelines."""

    SAVED: ClassVar[dict[str, Any]] = {STEPS: None, DEVICES: None, ACCUMULATE_OUTFEED: None, REDUCTION: 0}
    UNSAVED: ClassVar[tuple[str, ...]] = (ARGUMENTS,)

    def set_pipelining_options(
        self: KerasModel,
        gradient_accumulation_steps_per_replica: int | None = None,
        device_mapping: list[int] | None = None,
        accumulate_outfeed: bool | None = None,
        gradient_accumulation_reduction_method: object = "sum",
        **pipelining_kwargs: object,
    ) -> None:
        """Sets how the model runs once it has pipeline stages (Keras API; Keras with IPUs, section 19.4.4).

        Args:
            gradient_accumulation_steps_per_replica: the micro-batches that each replica takes with the same weights;
                `fit` needs it except with the Sequential schedule.
            device_mapping: the IPU of each stage; if None, stages that share layers share an IPU.
            accumulate_outfeed: whether loss and metrics of an execution are means over its micro-batches.
            gradient_accumulation_reduction_method: "sum", "mean" or "running_mean" of the micro-batches' gradients.
            **pipelining_kwargs: further arguments of `ipu.pipelining_ops.pipeline()`, which are not saved.

        Raises:
            ConfigurationError: a ValueError: values out of range, arguments that `pipeline()` lacks or that Keras
                fills in.
        """
        steps = checked_steps(gradient_accumulation_steps_per_replica)
        if device_mapping is not None:
            device_mapping = _checked_mapping(device_mapping)
        if accumulate_outfeed is not None and not isinstance(accumulate_outfeed, bool):
            raise ConfigurationError(
                f"Expected accumulate_outfeed to be True, False or None. Received: {accumulate_outfeed!r}."
            )
        reduction = checked_reduction(gradient_accumulation_reduction_method)
        _check_arguments(pipelining_kwargs)
        options = options_of(self)
        options[STEPS], options[DEVICES], options[ACCUMULATE_OUTFEED] = steps, device_mapping, accumulate_outfeed
        options[REDUCTION] = REDUCTIONS.index(reduction)
        options[ARGUMENTS] = pipelining_kwargs
        if steps is not None:
            logger.info(
                "Model %r: pipelined training accumulates the gradients of %d steps in each replica, so its effective "
                "batch size is %d times that of the data set, times the number of replicas.",
                self.name,
                steps,
                steps,
            )


def pipelining_of(model: KerasModel, training: bool) -> ModelPipelining | None:
    """The pipelining of a model, None for one without stages; checks all that can be checked without data.

    It is called several times in each execution. The objects that the result depends on are replaced, never changed,
    so it is cached until one of them is replaced. Raises ConfigurationError for assignments and options that contradict
    each other.
    """
    layers = model.layers if graphs_of(model).kind(model) == "sequential" else [subclass_graph(model)]
    depends_on = [current_system(), *map(options_of(model).get, OPTIONS), *layers]
    name = KEPT[training]
    kept: _Kept | None = vars(model).get(name)
    if kept is not None and kept.is_of(depends_on):
        return kept.pipelining
    pipelining = _pipelining_of(model, training)
    if getattr(model, "built", False):  # stages of a model that is not built have no weights to share yet
        vars(model)[name] = _Kept(depends_on, pipelining)
    return pipelining


def _pipelining_of(model: KerasModel, training: bool) -> ModelPipelining | None:
    if not is_pipelined(model):
        return None
    stages = checked_stages(model)
    arguments: Mapping[str, Any] = option(model, ARGUMENTS, {})
    calls = calls_of(model)
    numbers = [stage for stage in of_leaves(calls, stages) if stage is not None]
    number = max(numbers) + 1
    devices = _device_mapping(model, _sharing(calls, numbers))
    schedule = checked_schedule(arguments.get("pipeline_schedule"))
    check_pipeline(kind_of(schedule), number, devices_of(number, devices), training=training)
    checked_recomputation(mode := arguments.get("recomputation_mode"), schedule)
    pipelining = ModelPipelining(
        stages,
        devices,
        kind_of(schedule),
        (mode or RecomputationMode.Auto).name if training and current_system().config.allow_recompute else None,
        bool(option(model, ACCUMULATE_OUTFEED, False)),
        placed(checked_storage(arguments), accumulates=training),
        outfeed_sum_dtype(model),
        stage_options_of(arguments, number),
    )
    _notice_idle(model, pipelining)
    return pipelining


def _notice_idle(model: KerasModel, pipelining: ModelPipelining) -> None:
    """Warns once for each model of IPUs that its replicas take and no stage uses."""
    used = len(set(pipelining.devices))
    if used < pipelining.ipus and model not in _noticed and current_system().configured:
        _noticed.add(model)
        logger.warning(
            "The stages of %r are on %d IPUs, and a replica takes %d, as IPUs are wired in powers of two: %d without "
            "work. model.plan_pipeline(%d) proposes stages for all of them.",
            model.name,
            used,
            pipelining.ipus,
            pipelining.ipus - used,
            pipelining.ipus,
        )


def _device_mapping(model: KerasModel, groups: Sequence[int]) -> tuple[int, ...]:
    """The IPU of each stage: as set, or the next one, but the same for stages of one group, which share weights."""
    given = option(model, DEVICES)
    if given is None:
        first = [min(other for other, group in enumerate(groups) if group == of_stage) for of_stage in groups]
        numbers = {stage: number for number, stage in enumerate(dict.fromkeys(first))}
        return tuple(numbers[stage] for stage in first)
    devices = checked_device_mapping(given, len(groups))
    for stage, group in enumerate(groups):
        if devices[stage] != devices[group]:
            raise ConfigurationError(
                f"Expected stages that share weights on one IPU. Received: device_mapping={list(devices)} "
                f"for stages {group} and {stage} of model {model.name!r}, which share some. Leave device_mapping out, "
                f"or set device_mapping[{stage}] = {devices[group]}."
            )
    return devices


def _sharing(calls: Calls, stages: Sequence[int]) -> list[int]:
    """The first stage with which each stage shares weights, directly or through others."""
    groups = list(range(max(stages) + 1))
    first_use: dict[int, int] = {}
    for call, stage in zip(calls.leaves, stages, strict=True):
        for weight in shared_weights(call):
            one, other = groups[first_use.setdefault(id(weight), stage)], groups[stage]
            groups = [min(one, other) if group in (one, other) else group for group in groups]
    return groups


def shared_weights(call: LayerCall) -> list[Any]:
    """The weights of a layer and of its inner layers, and the variables that an operation takes."""
    taken = [] if call.node is None else flat_arguments(call.node)
    return [*getattr(call.layer, "weights", ()), *(value for value in taken if hasattr(value, "assign"))]


def accumulator_type_of_pipeline(model: KerasModel) -> AccumulatorType:
    """The type in which a pipeline's gradients are accumulated; None means the type of each gradient."""
    return option(model, ARGUMENTS, {}).get("gradient_accumulation_dtype")


def pipelining_steps(model: KerasModel) -> int | None:
    """The number of micro-batches that each replica accumulates; None where it is not set."""
    return option(model, STEPS)


def outfeed_sum_dtype(model: KerasModel) -> Any:
    """The type in which logs are summed over micro-batches, or a function of the tensor; None for the log's own."""
    return option(model, ARGUMENTS, {}).get("accumulate_outfeed_dtype")


def accumulates_outfeed(model: KerasModel) -> bool:
    """Whether the logs of an execution are means over its micro-batches, if the model is pipelined."""
    return bool(option(model, ACCUMULATE_OUTFEED, False))


def _checked_mapping(mapping: object) -> list[int]:
    if not isinstance(mapping, list | tuple) or not all(isinstance(d, int) and d >= 0 for d in mapping):
        raise ConfigurationError(
            f"Expected device_mapping to be a list of integers, the IPU of each stage. Received: {mapping!r}."
        )
    return list(checked_device_mapping(mapping, len(mapping)))


def _check_arguments(arguments: Mapping[str, Any]) -> None:
    check_names("pipeline()", arguments, pipeline_arguments() - {"device_mapping", "accumulate_outfeed"}, SET_BY_KERAS)
    schedule = checked_schedule(arguments.get("pipeline_schedule"))
    checked_recomputation(arguments.get("recomputation_mode"), schedule)
    stage_options_of(arguments)
    checked_storage(arguments)
    checked_sum_dtype(arguments.get("accumulate_outfeed_dtype"))
    if arguments.get("continuous_weight_updates"):
        raise NotImplementedError(
            "Expected continuous_weight_updates=False: TensorFlow for IPUs never had it. Received: True. Leave it out."
        )
    check_accumulator_type(arguments.get("gradient_accumulation_dtype"))
