"""A schedule in time: the slots of a pipeline in sequence, in tile clock cycles."""

from __future__ import annotations

from collections.abc import Mapping

from engine.frozen import frozen
from engine.partition.schedule import Kind, Schedule
from engine.profile.step_costs import PartCost, TimedRow


@frozen
class ScheduleTiming:
    """A schedule in time. `critical` has the cost of each slot's longest row, `period` the cycles per micro-batch."""

    rows: tuple[TimedRow, ...]
    critical: tuple[PartCost, ...]
    period: int

    @property
    def cycles(self) -> int:
        return sum(cost.cycles for cost in self.critical)

    def busy(self, *, update: bool) -> dict[int, int]:
        """Busy cycles of each IPU, with or without its update."""
        found = dict.fromkeys((row.ipu for row in self.rows), 0)
        for row in self.rows:
            if update or row.kind != "update":
                found[row.ipu] += row.cycles
        return found

    def waits(self) -> dict[int, float]:
        """Share of the time, without the update, in which each IPU waits."""
        whole = sum(cost.cycles for cost in self.critical if cost.kind != "update")
        return {ipu: 1 - busy / whole if whole else 0.0 for ipu, busy in self.busy(update=False).items()}


def period_of(schedule: Schedule, costs: Mapping[tuple[Kind, int], PartCost]) -> int:
    """Cycles per micro-batch while all stages are busy. A part without an entry in `costs` takes no cycles."""
    phases: dict[int, int] = {}
    for part in schedule.parts:
        phase, cost = part.start % schedule.period, costs.get((part.kind, part.stage))
        phases[phase] = max(phases.get(phase, 0), cost.cycles if cost else 0)
    return sum(phases.values())


def lay_out(schedule: Schedule, costs: Mapping[tuple[Kind, int], PartCost]) -> ScheduleTiming:
    """Lay out the rows of a schedule in time. All IPUs sync at a slot's end: it takes as long as its longest row.

    A part without an entry in `costs` takes no cycles.
    """

    def cost(kind: Kind, stage: int) -> PartCost:
        return costs.get((kind, stage), PartCost(kind, stage))

    critical = [PartCost("forward", 0)] * schedule.slots
    for row in schedule.rows:
        mine = cost(row.kind, row.stage)
        if row.kind == "update" or mine.cycles > critical[row.slot].cycles:
            critical[row.slot] = max(critical[row.slot], mine, key=lambda each: (each.kind == "update", each.cycles))
    starts, start = [], 0
    for longest in critical:
        starts.append(start)
        start += longest.cycles
    rows = tuple(
        TimedRow(r.slot, r.ipu, r.stage, r.kind, r.micro_batch, starts[r.slot], cost(r.kind, r.stage).cycles)
        for r in schedule.rows
    )
    return ScheduleTiming(rows, tuple(critical), period_of(schedule, costs))
