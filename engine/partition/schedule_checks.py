"""Checks of a pipeline's options."""

from __future__ import annotations

from typing import get_args

from engine.errors import AccumulationStepError, ConfigurationError, UnsupportedOperation
from engine.partition.schedule import Devices, Recomputation, ScheduleKind

RecomputationMode = str
"""Names of Graphcore's `RecomputationMode`."""
MODES: dict[str, Recomputation] = {
    "RecomputeThenBackpropagate": "then_backpropagate",
    "RecomputeAndBackpropagateInterleaved": "with_backpropagation",
}


def check_pipeline(kind: ScheduleKind, stages: int, devices: Devices, *, training: bool) -> None:
    """Raises ConfigurationError for wrong options, UnsupportedOperation if Interleaved training shares an IPU."""
    if kind not in get_args(ScheduleKind):
        names = ", ".join(get_args(ScheduleKind))
        raise ConfigurationError(f"Expected one of the pipeline schedules {names}. Received: {kind!r}.")
    if stages < 2:
        raise ConfigurationError(
            f"Expected a pipeline of at least 2 stages. Received: {stages}. Split the model into 2 stages, or run it "
            f"without pipelining."
        )
    if len(devices) != stages or not all(devices):
        raise ConfigurationError(
            f"Each stage must be mapped to an IPU: expected a device_mapping of {stages} elements. Received: "
            f"{len(devices)}, {_mapping(devices)}."
        )
    negative = [ipu for ipus in devices for ipu in ipus if ipu < 0]
    if negative:
        raise ConfigurationError(f"Expected IPU numbers of 0 and above in device_mapping. Received: {negative[0]}.")
    shared = [ipu for ipus in devices for ipu in set(ipus)]
    if kind == "Interleaved" and training and len(set(shared)) < len(shared):
        raise UnsupportedOperation(
            f"Expected stages on different IPUs for training with PipelineSchedule.Interleaved. Received: "
            f"device_mapping={_mapping(devices)}. Use PipelineSchedule.Grouped, or one IPU for each stage."
        )


def _mapping(devices: Devices) -> list[int | list[int]]:
    return [ipus[0] if len(ipus) == 1 else list(ipus) for ipus in devices]


def recomputation_of(mode: RecomputationMode | None, kind: ScheduleKind) -> Recomputation:
    """The recomputation of a schedule in one of Graphcore's modes; None for none.

    Raises UnsupportedOperation for modes that the schedule does not support, ConfigurationError for unknown ones.
    """
    if mode is None:
        return "none"
    if mode == "Auto":
        return "with_backpropagation" if kind == "Sequential" else "then_backpropagate"
    if mode not in MODES:
        raise ConfigurationError(f"Expected a recomputation mode of Auto, {', '.join(MODES)}. Received: {mode!r}.")
    recomputation = MODES[mode]
    refused = {"Sequential": "then_backpropagate", "Interleaved": "with_backpropagation"}
    if refused.get(kind) == recomputation:
        other = next(name for name, each in MODES.items() if each != recomputation)
        raise UnsupportedOperation(
            f"Expected a recomputation mode that PipelineSchedule.{kind} has. Received: {mode}. Use {other} or Auto."
        )
    return recomputation


def legal_count(kind: ScheduleKind, devices: Devices, *, training: bool) -> int:
    """The number whose multiples are the legal counts of micro-batches."""
    if kind == "Sequential":
        return 1
    if kind == "Grouped":
        return len(devices) * (2 if training else 1)
    return len({ipu for ipus in devices for ipu in ipus}) if training else len(set(devices))


def check_count(kind: ScheduleKind, devices: Devices, micro_batches: int, *, training: bool, option: str) -> None:
    """Raises AccumulationStepError for a number of micro-batches with which the schedule has no whole periods.

    `option` is the name of the user's option, for the message.
    """
    unit = legal_count(kind, devices, training=training)
    if micro_batches >= 1 and micro_batches % unit == 0:
        return
    below = micro_batches // unit * unit
    nearest = f"{below} or {below + unit}" if below >= unit else f"{unit}"
    passes = "forward and backward stages together" if training and kind == "Grouped" else "stages"
    raise AccumulationStepError(
        f"Expected {option} to be a multiple of {unit}, the number of {passes} in a pipeline of {len(devices)} stages "
        f"with PipelineSchedule.{kind}. Received: {micro_batches}. The nearest legal count is {nearest}; "
        f"PipelineSchedule.Sequential takes any."
    )
