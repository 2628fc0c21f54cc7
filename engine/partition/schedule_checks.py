"""Checks of a pipeline's options, and of the invariants of its schedule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from engine.errors import AccumulationStepError, ConfigurationError, InternalError, UnsupportedOperation
from engine.partition.schedule import Devices, Kind, Recomputation, Row, Schedule, ScheduleKind

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


def verify_schedule(schedule: Schedule) -> None:
    """Raises InternalError unless each part runs once for each micro-batch, in order and on its IPUs."""
    slots, stages = _slots(schedule), range(schedule.stages)
    order: list[tuple[Kind, int]] = [("forward", stage) for stage in stages]
    for stage in reversed(stages if schedule.training else ()):
        order += [("recompute", stage)] if schedule.recomputation == "then_backpropagate" else []
        order += [("backward", stage)]
    micro_batches = range(schedule.micro_batches)
    expected: set[tuple[Kind, int, int | None]] = {(*part, m) for part in order for m in micro_batches}
    updates: set[tuple[Kind, int, int | None]] = {("update", stage, None) for stage in stages if schedule.training}
    _require(set(slots) == expected | updates, "each part runs once")
    for micro_batch in micro_batches:
        # Recomputations are not ordered against the gradients of later stages.
        for kind in ("recompute", "backward"):
            when = [slots[*part, micro_batch] for part in order if part[0] != kind]
            _require(when == sorted(set(when)), f"order of micro-batch {micro_batch}")
        for kind, stage in order:
            if kind == "recompute":
                again, backward = slots[kind, stage, micro_batch], slots["backward", stage, micro_batch]
                _require(again < backward, f"recomputation of micro-batch {micro_batch}")
    last = max(row.slot for row in schedule.rows if row.kind != "update")
    _require(all(slots[update] > last for update in updates), "updates come last")


def _slots(schedule: Schedule) -> dict[tuple[Kind, int, int | None], int]:
    """The slot in which each part of each micro-batch runs, the same on all its IPUs."""
    found: dict[tuple[Kind, int, int | None], list[Row]] = {}
    positions: set[tuple[int, int]] = set()
    for row in schedule.rows:
        found.setdefault((row.kind, row.stage, row.micro_batch), []).append(row)
        _require((row.slot, row.ipu) not in positions, f"IPU {row.ipu} does one thing in slot {row.slot}")
        positions.add((row.slot, row.ipu))
    for (_, stage, _), rows in found.items():
        together = len({row.slot for row in rows}) == 1
        _require(together and _ipus(rows) == sorted(set(schedule.devices[stage])), f"IPUs of stage {stage}")
    _require([row.slot for row in schedule.rows] == sorted(row.slot for row in schedule.rows), "rows are in order")
    return {key: rows[0].slot for key, rows in found.items()}


def _ipus(rows: Sequence[Row]) -> list[int]:
    return sorted(row.ipu for row in rows)


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise InternalError(f"A pipeline's schedule is broken: {what}.")
