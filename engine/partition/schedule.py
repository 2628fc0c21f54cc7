"""Pipeline schedules as data: in which time slot which IPU runs which part of which micro-batch.

All three schedules are periodic: a part (forward, recompute or backward of a stage) runs once in each period, for
micro-batch m exactly m periods after micro-batch 0. A slot is as long as its longest row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from engine.frozen import frozen

ScheduleKind = Literal["Grouped", "Interleaved", "Sequential"]
"""Names of `PipelineSchedule` (Graphcore's documentation, "Pipelined training")."""
Recomputation = Literal["none", "then_backpropagate", "with_backpropagation"]
"""The place of recomputed forward parts: nowhere, in rows of their own, or in the backward part's row. The last stage
recomputes nothing."""
Kind = Literal["forward", "recompute", "backward", "update"]
Devices = tuple[tuple[int, ...], ...]
"""IPUs of each stage: one, or one for each of its concurrent parts."""


@frozen
class Row:
    """The part that one IPU runs in one slot. The update has no micro-batch."""

    slot: int
    ipu: int
    stage: int
    kind: Kind
    micro_batch: int | None


@frozen
class Part:
    """A stage's forward, recompute or backward: for micro-batch 0 it runs at `start`, where empty slots count, too."""

    kind: Kind
    stage: int
    start: int


@frozen
class Schedule:
    """All rows of one execution of a pipeline on one replica, in order; `parts` and `period` say how they repeat."""

    kind: ScheduleKind
    stages: int
    devices: Devices
    micro_batches: int
    training: bool
    recomputation: Recomputation
    period: int
    parts: tuple[Part, ...]
    rows: tuple[Row, ...]

    @property
    def slots(self) -> int:
        """The number of slots of one execution, those of the update included."""
        return self.rows[-1].slot + 1

    @property
    def ipus(self) -> tuple[int, ...]:
        """The IPUs that have a stage."""
        return tuple(sorted({ipu for ipus in self.devices for ipu in ipus}))

    def part(self, kind: Kind, stage: int) -> Part:
        """The part of a kind and a stage."""
        return next(part for part in self.parts if (part.kind, part.stage) == (kind, stage))

    def recomputes_apart(self, stage: int) -> bool:
        """Whether a stage's recomputation is a part of its own."""
        return any((part.kind, part.stage) == ("recompute", stage) for part in self.parts)

    def position(self, part: Part) -> int:
        """The index of a part in a micro-batch's path: forward through the stages, and back."""
        return part.stage if part.kind == "forward" else 2 * self.stages - 1 - part.stage

    def depth(self, writer: Part, reader: Part) -> int:
        """The largest number of micro-batches whose values from one part are kept until another has read them."""
        return (reader.start - writer.start) // self.period + 1

    def stash_depths(self) -> tuple[int, ...]:
        """Largest number of micro-batches whose activations each stage's IPU holds, with the current one."""
        if not self.training:
            return (0,) * self.stages
        return tuple(self.depth(self.part("forward", s), self.part("backward", s)) for s in range(self.stages))

    def bubbles(self, durations: Mapping[tuple[Kind, int], float] | None = None) -> dict[int, float]:
        """Fraction of the time, without the update, in which each IPU is idle.

        `durations` maps (kind, stage) to a time in any unit; without it all rows take the same time.
        """
        longest: dict[int, float] = {}
        busy = dict.fromkeys(self.ipus, 0.0)
        for row in self.rows:
            if row.kind != "update":
                taken = durations[row.kind, row.stage] if durations else 1.0
                longest[row.slot] = max(longest.get(row.slot, 0.0), taken)
                busy[row.ipu] += taken
        total = sum(longest.values())
        return {ipu: 1 - taken / total for ipu, taken in busy.items()}


def devices_of(stages: int, device_mapping: Sequence[int | Sequence[int]] | None) -> Devices:
    """The IPUs of each stage; by default stage k is on IPU k."""
    mapping = range(stages) if device_mapping is None else device_mapping
    return tuple((each,) if isinstance(each, int) else tuple(each) for each in mapping)


def make_schedule(
    kind: ScheduleKind,
    devices: Devices,
    micro_batches: int,
    *,
    training: bool,
    recomputation: Recomputation = "none",
) -> Schedule:
    """The schedule of one execution on one replica, from arguments that `check_pipeline` has accepted."""
    recomputes = training and recomputation == "then_backpropagate"
    make = {"Grouped": _grouped, "Interleaved": _interleaved, "Sequential": _sequential}[kind]
    period, parts = make(devices, training, recomputes)
    ordered = tuple(sorted(parts, key=lambda part: (part.start, part.stage)))
    rows = _rows(devices, micro_batches, period, ordered)
    if training:
        rows += _updates(devices, rows[-1].slot + 1)
    mode: Recomputation = recomputation if training else "none"
    return Schedule(kind, len(devices), devices, micro_batches, training, mode, period, ordered, tuple(rows))


def _grouped(devices: Devices, training: bool, recomputes: bool) -> tuple[int, list[Part]]:
    """All IPUs run forward, then all backward. An IPU with several stages runs them one after the other."""
    stages = len(devices)
    lanes, width = _lanes(devices)
    again = _lanes(devices[:-1])[1] if recomputes else 0
    period = width * (1 + training) + again
    parts = []
    for stage, lane in enumerate(lanes):
        parts.append(Part("forward", stage, period * stage + lane))
        iteration = period * (2 * stages - 1 - stage)
        if recomputes and stage + 1 < stages:
            parts.append(Part("recompute", stage, iteration + width + lane))
        if training:
            parts.append(Part("backward", stage, iteration + period - width + lane))
    return period, parts


def _interleaved(devices: Devices, training: bool, recomputes: bool) -> tuple[int, list[Part]]:
    """Each IPU alternates between forward and backward, its neighbours the other way round."""
    if not training:
        return _grouped(devices, training, recomputes)
    stages, period = len(devices), 3 if recomputes else 2
    parts = []
    for stage in range(stages):
        backward = stage + period * (stages - 1 - stage) + period - 1
        parts += [Part("forward", stage, stage), Part("backward", stage, backward)]
        parts += [Part("recompute", stage, backward - 1)] if recomputes and stage + 1 < stages else []
    return period, parts


def _sequential(devices: Devices, training: bool, recomputes: bool) -> tuple[int, list[Part]]:
    """One stage of one micro-batch at a time."""
    kinds: list[tuple[Kind, int]] = [("forward", stage) for stage in range(len(devices))]
    for stage in reversed(range(len(devices) if training else 0)):
        kinds += [("recompute", stage)] if recomputes and stage + 1 < len(devices) else []
        kinds += [("backward", stage)]
    return len(kinds), [Part(kind, stage, start) for start, (kind, stage) in enumerate(kinds)]


def _lanes(devices: Devices) -> tuple[list[int], int]:
    """The number of each stage's slot, among slots in which all IPUs run one kind of part, and the count of slots."""
    taken: dict[int, int] = {}
    lanes = []
    for ipus in devices:
        lane = max(taken.get(ipu, 0) for ipu in ipus)
        taken.update(dict.fromkeys(ipus, lane + 1))
        lanes.append(lane)
    return lanes, max(taken.values())


def _rows(devices: Devices, micro_batches: int, period: int, parts: Sequence[Part]) -> list[Row]:
    """The rows in order, without slots in which all IPUs are idle."""
    items = [(part.start + period * m, part, m) for part in parts for m in range(micro_batches)]
    numbers = {slot: number for number, slot in enumerate(sorted({slot for slot, _, _ in items}))}
    return [
        Row(numbers[slot], ipu, part.stage, part.kind, m)
        for slot, part, m in sorted(items, key=lambda item: (item[0], item[1].stage))
        for ipu in dict.fromkeys(devices[part.stage])
    ]


def _updates(devices: Devices, slot: int) -> list[Row]:
    lanes, _ = _lanes(devices)
    rows = [
        Row(slot + lane, ipu, stage, "update", None)
        for stage, lane in enumerate(lanes)
        for ipu in dict.fromkeys(devices[stage])
    ]
    return sorted(rows, key=lambda row: (row.slot, row.stage))
