"""The stages of an exported pipeline: the checks of its schedule, and the composition of its stages."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from engine.errors import ConfigurationError
from engine.ir.op_names import STAGE
from engine.partition.schedule import devices_of
from engine.partition.schedule_checks import check_count, check_pipeline
from engine.serving.manifest import PipelineManifest
from ipu._internal.pipelining.errors import PipelineTypeError
from ipu._internal.pipelining.options import check_stage_list, checked_device_mapping, checked_schedule, kind_of
from ipu._internal.pipelining.stage_options import check_stage_options, library_options
from ipu._internal.serving.served_functions import traceable
from ipu._internal.types import Function, Nest


def checked_pipeline(stages: Nest, iterations: int, mapping: Nest, schedule: object, options: Nest) -> PipelineManifest:
    """Checks a pipeline; raises ConfigurationError, StepCountError (ValueErrors) or PipelineTypeError (a TypeError)."""
    check_stage_list(stages, "Export a single one with export_single_step.")
    for number, stage in enumerate(stages):
        if not callable(stage):
            raise PipelineTypeError(f"Expected stage {number} to be a function. Received: {stage!r}.")
    devices = checked_device_mapping(mapping, len(stages))
    kind = kind_of(checked_schedule(schedule))
    check_pipeline(kind, len(stages), devices_of(len(stages), devices), training=False)
    check_stage_options("poplar_options", options, len(stages))
    check_count(kind, devices_of(len(stages), devices), iterations, training=False, option="iterations")
    return PipelineManifest(devices, kind, tuple(map(library_options, options or ())))


def composition(stages: Sequence[Callable[..., Any]], constants: Sequence[Any], name: str) -> Callable[..., Any]:
    """One function for all stages, with the parameters of the first one after `constants`.

    A call raises ConfigurationError if a stage does not take the results of the one before.
    """
    first = getattr(stages[0], "python_function", stages[0])
    parts = [traceable(stage) for stage in stages]

    @tf.autograph.experimental.do_not_convert
    def pipeline(*tensors: tf.Tensor) -> Any:
        results: Any = (*(tf.convert_to_tensor(constant) for constant in constants), *tensors)
        for number, (stage, part) in enumerate(zip(stages, parts, strict=True)):
            arguments = results if isinstance(results, list | tuple) else (results,)
            _check_arguments(number, stage, arguments)
            with tf.name_scope(f"{name}/{STAGE}{number}"):
                results = part(*arguments)
        return results

    signature = inspect.signature(first)
    kept = list(signature.parameters.values())[len(constants) :]
    pipeline.__signature__ = signature.replace(parameters=kept)
    own = getattr(stages[0], "input_signature", None)
    if own is not None:
        pipeline.input_signature = own[len(constants) :]
    return pipeline


def _check_arguments(number: int, stage: Function, arguments: Sequence[Any]) -> None:
    try:
        inspect.signature(getattr(stage, "python_function", stage)).bind(*arguments)
    except TypeError as error:
        giver = f"what stage {number - 1} returned" if number else "inputs and what requests bring"
        raise ConfigurationError(
            f"Expected stage {number} to take {giver}, {len(arguments)} arguments. Received: {error}."
        ) from error
