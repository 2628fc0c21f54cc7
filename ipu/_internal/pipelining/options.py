"""The enumerations and option classes of pipelines, and the checks of each option."""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import get_args

from engine.errors import ConfigurationError
from engine.integers import is_integer
from engine.partition.accumulation import Reduction
from engine.partition.schedule import Recomputation, ScheduleKind
from engine.partition.schedule_checks import recomputation_of
from ipu._internal.pipelining.errors import PipelineTypeError


class PipelineSchedule(IntEnum):
    """The interleaving of the stages' forward and backward passes on the IPUs (Python API, 18.14.6).

    Grouped: all forward passes together, then all backward passes. Interleaved: backward passes as soon as there are
    activations for them. Sequential: one stage at a time, for debugging. Results are the same with all three.
    """

    Grouped = 0
    Interleaved = 1
    Sequential = 2


class RecomputationMode(Enum):
    """Recomputation of activations in a pipeline, where `IPUConfig.allow_recompute` is set (Python API, 18.14.6).

    Auto: the schedule's default. RecomputeThenBackpropagate: first all activations of a stage, for Grouped and
    Interleaved. RecomputeAndBackpropagateInterleaved: alternately, for Grouped and Sequential. Results are the same
    with all three.
    """

    Auto = 0
    RecomputeThenBackpropagate = 1
    RecomputeAndBackpropagateInterleaved = 2


class GradientAccumulationReductionMethod(Enum):
    """The reduction of the gradients of the batches between two updates.

    SUM adds them. MEAN adds each divided by the number of batches. RUNNING_MEAN keeps, after each batch, the mean so
    far, which stays in the range of the gradients themselves.
    """

    SUM = 0
    MEAN = 1
    RUNNING_MEAN = 2

    @classmethod
    def parse(cls, method: object) -> GradientAccumulationReductionMethod:
        """The member of a name.

        Args:
            method: the name in any case, the value of a member, or a member.

        Returns:
            The member.

        Raises:
            ValueError: `method` has another value.
        """
        return cls[checked_reduction(method).upper()]


def checked_schedule(schedule: object, default: PipelineSchedule = PipelineSchedule.Grouped) -> PipelineSchedule:
    """A member of PipelineSchedule, or its value; `default` for None. Raises PipelineTypeError for anything else."""
    if schedule is None:
        return default
    if is_integer(schedule) and int(schedule) in set(PipelineSchedule):
        return PipelineSchedule(int(schedule))
    raise PipelineTypeError(
        f"Expected pipeline_schedule to be one of {', '.join(map(str, PipelineSchedule.__members__.values()))} or "
        f"None. Received: {schedule!r}."
    )


def checked_recomputation(mode: object, schedule: PipelineSchedule) -> Recomputation:
    """The engine's recomputation for a mode and schedule; None is Auto.

    Raises PipelineTypeError for anything but a member of RecomputationMode or None, UnsupportedOperation for a mode
    that the schedule lacks.
    """
    if mode is not None and not isinstance(mode, RecomputationMode):
        raise PipelineTypeError(f"Expected recomputation_mode to be a RecomputationMode or None. Received: {mode!r}.")
    return recomputation_of((mode or RecomputationMode.Auto).name, kind_of(schedule))


def kind_of(schedule: PipelineSchedule) -> ScheduleKind:
    """The engine's name of a schedule."""
    return next(kind for kind in get_args(ScheduleKind) if kind == schedule.name)


def check_stage_list(stages: object, advice: str) -> None:
    """Raises PipelineTypeError unless stages are a list or tuple, ConfigurationError with advice for fewer than two."""
    if not isinstance(stages, list | tuple):
        raise PipelineTypeError(f"Expected computational_stages to be a list or tuple. Received: {stages!r}.")
    if len(stages) < 2:
        raise ConfigurationError(
            f"Expected a pipeline of at least two computational stages. Received: {len(stages)}. {advice}"
        )


def checked_device_mapping(mapping: object, stages: int) -> tuple[int, ...]:
    """The IPU of each stage; None maps stage k to IPU k.

    Raises PipelineTypeError for anything but a list or tuple of integers, ConfigurationError for one of another
    length.
    """
    if mapping is None:
        return tuple(range(stages))
    if not isinstance(mapping, list | tuple):
        raise PipelineTypeError(f"Expected device_mapping to be a list or tuple of integers. Received: {mapping!r}.")
    if len(mapping) != stages:
        raise ConfigurationError(
            f"Each stage must be mapped to an IPU. Expected device_mapping to have {stages} elements. Received: "
            f"{len(mapping)}. Nearest: device_mapping={list(range(stages))}."
        )
    for device in mapping:
        if not is_integer(device) or device < 0:
            raise PipelineTypeError(
                f"Expected the elements of device_mapping to be numbers of IPUs, from 0. Received: {device!r}."
            )
    return tuple(int(device) for device in mapping)


REDUCTIONS: tuple[Reduction, ...] = get_args(Reduction)


def checked_reduction(method: object) -> Reduction:
    """The reduction of a name in any case, a member of GradientAccumulationReductionMethod or its value.

    Raises ConfigurationError for all else.
    """
    name = getattr(method, "name", method)
    for number, reduction in enumerate(REDUCTIONS):
        if (is_integer(name) and name == number) or (isinstance(name, str) and name.lower() == reduction):
            return reduction
    raise ConfigurationError(
        f"Cannot parse {method!r} as one of GradientAccumulationReductionMethod. Expected one of "
        f"{', '.join(map(repr, REDUCTIONS))}. Received: {method!r}."
    )
