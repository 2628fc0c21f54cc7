"""What a chip would make of a pipeline: its schedule in cycles, and what each IPU computes, holds and waits for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.partition.schedule import Kind, Schedule
from engine.shown import Shown

if TYPE_CHECKING:
    from engine.profile.account import Account, ComputeSetCost


@dataclass(frozen=True, slots=True)
class PartCost:
    """One run of a part on one IPU, in tile clock cycles.

    `links` are those of what it takes from other IPUs, `received_bytes`; an update's are of the sum of gradients over
    replicas. `streaming` are of what comes from streaming memory or goes there. `sync` has the syncs between IPUs
    with it, `external_sync` is those alone.
    """

    kind: Kind
    stage: int
    compute: int = 0
    exchange: int = 0
    sync: int = 0
    links: int = 0
    received_bytes: int = 0
    streaming: int = 0
    external_sync: int = 0

    @property
    def cycles(self) -> int:
        return self.compute + self.exchange + self.sync + self.links + self.streaming


@dataclass(frozen=True, slots=True)
class TimedRow:
    """A row of the schedule with the tile clock cycle at which it begins and those that it takes.

    The update has no micro-batch.
    """

    slot: int
    ipu: int
    stage: int
    kind: Kind
    micro_batch: int | None
    start: int
    cycles: int


@dataclass(frozen=True, slots=True, repr=False)
class IpuAccount(Shown):
    """One IPU of a pipeline: the account of one run of each of its parts, whose memory has all that waits on it.

    `stash_bytes` are those of values that wait for later parts on its tiles, `streamed_bytes` in streaming memory (with
    what the update alone uses, where that is offloaded), `busy` its cycles in a step, `waits` the share of the
    step, the update apart, in which it has nothing to do.
    """

    ipu: int
    stages: tuple[int, ...]
    account: Account
    stash_bytes: int
    busy: int
    waits: float
    streamed_bytes: int = 0

    @property
    def bytes(self) -> int:
        """On all tiles at the fullest moment."""
        memory = self.account.memory
        return round(memory.peak_mean * self.account.target.tiles)

    @property
    def fits(self) -> bool:
        return self.account.fits

    def table(self) -> str:
        """One line: bytes of the fullest tile, and what share of the time the IPU waits."""
        memory, room = self.account.memory, self.account.target.bytes_per_tile
        verdict = "fits" if self.fits else f"DOES NOT FIT, {memory.peak_fullest - room:,} bytes over"
        return (
            f"IPU {self.ipu}: fullest tile at {memory.peak_fullest / room:.1%} of {room:,} bytes, {verdict}; "
            f"waits {self.waits:.0%}"
        )


@dataclass(frozen=True, slots=True, repr=False)
class PipelineAccount(Shown):
    """One execution of a pipeline on one replica: `micro_batches` through all `stages`, and the update.

    `compute`, `exchange` (between IPUs and with streaming memory, too) and `sync` are those of the longest row of each
    slot, one after the other: they add up to the step. `period` are the cycles in which a micro-batch is done while the
    pipeline is full. `between_ipus` are the cycles of transfer and of sync between IPUs that are among them. `critical`
    has the longest row's cost for each slot, `gradient_bytes` for each stage what it adds up over replicas, in
    sums of `gradient_sums` bytes.
    """

    schedule: str
    stages: int
    micro_batches: int
    training: bool
    parts: tuple[PartCost, ...]
    rows: tuple[TimedRow, ...]
    ipus: tuple[IpuAccount, ...]
    costs: tuple[ComputeSetCost, ...]
    compute: int
    exchange: int
    sync: int
    period: int
    between_ipus: tuple[int, int]
    critical: tuple[PartCost, ...] = ()
    gradient_bytes: tuple[int, ...] = ()
    gradient_sums: tuple[tuple[int, ...], ...] = ()

    @property
    def cycles(self) -> int:
        """Of one step, from the first micro-batch to the end of the update."""
        return self.compute + self.exchange + self.sync

    @property
    def fits(self) -> bool:
        """Whether every IPU holds what is on it."""
        return all(each.fits for each in self.ipus)

    @property
    def bubbles(self) -> dict[int, float]:
        """For each IPU the share of the step's cycles, the update apart, in which it waits."""
        return {each.ipu: each.waits for each in self.ipus}

    @property
    def bubble_share(self) -> float:
        """The mean of all IPUs."""
        return sum(self.bubbles.values()) / len(self.ipus)

    @property
    def works(self) -> tuple[int, ...]:
        """For each stage its cycles for a micro-batch, forward and backward."""
        parts = [part for part in self.parts if part.kind != "update"]
        return tuple(sum(part.cycles for part in parts if part.stage == stage) for stage in range(self.stages))

    def part(self, kind: Kind, stage: int) -> PartCost:
        """The cost of a part; one without any where there is none."""
        return next((p for p in self.parts if (p.kind, p.stage) == (kind, stage)), PartCost(kind, stage))

    def table(self) -> str:
        """A line for each stage, one for each IPU."""
        return pipeline_table(self)


@dataclass(frozen=True, slots=True)
class Layout:
    """A schedule in time: `critical` has the cost of the longest row of each slot."""

    rows: tuple[TimedRow, ...]
    critical: tuple[PartCost, ...]
    period: int

    @property
    def cycles(self) -> int:
        return sum(cost.cycles for cost in self.critical)

    def busy(self, *, update: bool) -> dict[int, int]:
        """The cycles in which each IPU works, with or without its update."""
        found = dict.fromkeys((row.ipu for row in self.rows), 0)
        for row in self.rows:
            if update or row.kind != "update":
                found[row.ipu] += row.cycles
        return found

    def waits(self) -> dict[int, float]:
        """For each IPU the share of the time, the update apart, in which it waits."""
        whole = sum(cost.cycles for cost in self.critical if cost.kind != "update")
        return {ipu: 1 - busy / whole if whole else 0.0 for ipu, busy in self.busy(update=False).items()}


def lay_out(schedule: Schedule, costs: Mapping[tuple[Kind, int], PartCost]) -> Layout:
    """The rows of a schedule one slot after the other: all IPUs sync at its end, so it is as long as its longest row.

    A part that `costs` lacks takes no time.
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
    phases: dict[int, int] = {}
    for part in schedule.parts:
        phase = part.start % schedule.period
        phases[phase] = max(phases.get(phase, 0), cost(part.kind, part.stage).cycles)
    return Layout(rows, tuple(critical), sum(phases.values()))


def pipeline_table(pipeline: PipelineAccount) -> str:
    """The account as text, at most 88 characters wide."""
    what = "update" if pipeline.training else "execution"
    lines = [
        f"Pipeline: {pipeline.schedule}, {pipeline.stages} stages, {pipeline.micro_batches} micro-batches, "
        f"{pipeline.cycles:,} cycles for each {what}",
        f"{'stage':>5} {'IPU':>5} {'forward':>12} {'backward':>12} {'update':>12} {'from links':>12} {'share':>6}",
    ]
    on = {stage: each.ipu for each in pipeline.ipus for stage in each.stages}
    works = pipeline.works
    for stage in range(pipeline.stages):
        forward, update = pipeline.part("forward", stage), pipeline.part("update", stage)
        backward = [pipeline.part(kind, stage) for kind in ("recompute", "backward")]
        lines.append(
            f"{stage:>5} {on[stage]:>5} {forward.cycles:>12,} {sum(p.cycles for p in backward):>12,} "
            f"{update.cycles:>12,} {forward.links + sum(p.links for p in backward):>12,} "
            f"{works[stage] / max(1, sum(works)):>6.0%}"
        )
    return "\n".join([*lines, *(each.table() for each in pipeline.ipus)])
