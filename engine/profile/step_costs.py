"""Cost report of a step, in bytes and tile clock cycles: for one IPU, and for the IPUs of a pipeline."""

from __future__ import annotations

from dataclasses import dataclass

from engine.frozen import frozen
from engine.partition.schedule import Kind, Row
from engine.profile.liveness import LiveTensor, TileMemory
from engine.profile.memory import Memory
from engine.profile.operations import OperationCounts
from engine.profile.options import Assumptions
from engine.profile.placed_work import PlacedWork
from engine.profile.remote import RemoteMemory
from engine.profile.superstep_cost import Phases
from engine.program.program import Region
from engine.shown import Shown
from engine.target import Target


@frozen
class ComputeSetCost(Phases):
    """Cycles of one compute set, the number of its tiles, and the live bytes during it, without those always live.

    Cycles are those of a whole step, in which a compute set inside a loop runs `runs` times, and one on the cheaper
    side of a conditional never. `operation` is the work of one execution. `method` is the vertex or the plan if there
    are several to choose from. `op_name` is the front end's.
    """

    name: str
    label: str
    compute: int
    exchange: int
    sync: int
    tiles: int
    live_bytes: int
    runs: int = 1
    operation: OperationCounts = OperationCounts()
    method: str = ""
    op_name: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class StepCosts:
    """One step on one target. Cycles are tile clock cycles; each replica is a chip, and all run concurrently.

    `host_bytes` go from the host and to it: feeds, results, and the rows of queues of all iterations.

    `assumed` are the opcodes that have no row of their own in the table of cycles. `unknown_loops` is the number of
    loops with an unknown trip count, which count as one iteration.

    `shards` is the number of IPUs over which a replica is sharded. If it is above 1, the report is that of one chip in
    their place.

    `gradient_sums` are the bytes of each sum of gradients over replicas, in each of the step's `updates`. `work` has
    the tiles of each of `costs`, and `regions` its loops and branches.

    With a `pipeline`, memory and `costs` are those of one run of the parts of its fullest IPU. Cycles, samples and
    transfers are those of a whole step.
    """

    program_name: str
    target: Target
    replicas: int
    memory: Memory
    tiles: TileMemory
    liveness: tuple[LiveTensor, ...]
    costs: tuple[ComputeSetCost, ...]
    between_ipus: tuple[int, int]
    host_bytes: tuple[int, int]
    host: int
    samples_per_replica: int
    assumed: tuple[str, ...]
    unknown_loops: int = 0
    assumptions: Assumptions = Assumptions()
    remote: RemoteMemory = RemoteMemory()
    pipeline: PipelineEstimate | None = None
    gradient_sums: tuple[int, ...] = ()
    updates: int = 1
    shards: int = 1
    work: tuple[PlacedWork, ...] = ()
    regions: tuple[Region, ...] = ()

    @property
    def compute(self) -> int:
        if self.pipeline is not None:
            return self.pipeline.compute
        return sum(cost.compute for cost in self.costs)

    @property
    def exchange(self) -> int:
        """Cycles of exchange on the chip, between chips, and with streaming memory."""
        if self.pipeline is not None:
            return self.pipeline.exchange
        return sum(cost.exchange for cost in self.costs) + self.between_ipus[0] + self.remote.cycles(self.target)

    @property
    def sync(self) -> int:
        if self.pipeline is not None:
            return self.pipeline.sync
        return sum(cost.sync for cost in self.costs) + self.between_ipus[1]

    @property
    def cycles(self) -> int:
        """Cycles of compute, exchange and sync, without the transfer of feeds and results, which is `host`."""
        return self.compute + self.exchange + self.sync

    @property
    def exposed_host(self) -> int:
        """Cycles by which host transfers lengthen the step; with overlapped I/O only those beyond `cycles`."""
        return max(0, self.host - self.cycles) if self.assumptions.overlapped_io else self.host

    @property
    def cycles_per_step(self) -> int:
        """Cycles from the beginning of a step to its end: the sum of `cycles` and `exposed_host`."""
        return self.cycles + self.exposed_host

    @property
    def seconds_per_step(self) -> float:
        """Seconds of a step, with the part of the host's transfers that I/O tiles do not overlap."""
        return self.cycles_per_step / self.target.clock_hz

    @property
    def steps_per_second(self) -> float:
        return 1.0 / self.seconds_per_step if self.seconds_per_step else 0.0

    @property
    def samples_per_second(self) -> float:
        return self.steps_per_second * self.samples_per_replica * self.replicas

    @property
    def shares(self) -> dict[str, float]:
        """Fractions of `cycles`, which add up to 1 unless there are none."""
        whole = max(1, self.cycles)
        return {part: getattr(self, part) / whole for part in ("compute", "exchange", "sync")}

    @property
    def fits(self) -> bool:
        """Whether the fullest tile has the capacity for its peak; in a pipeline the fullest of all IPUs."""
        return self.memory.peak_fullest <= self.target.bytes_per_tile

    def top(self, count: int = 5) -> list[tuple[str, int, int]]:
        """The costliest compute sets as (name, number of that name, cycles), summed by name.

        A pipeline's are those of all IPUs, which work concurrently.
        """
        totals: dict[str, tuple[int, int]] = {}
        for cost in self.costs if self.pipeline is None else self.pipeline.costs:
            number, cycles = totals.get(cost.label, (0, 0))
            totals[cost.label] = (number + 1, cycles + cost.cycles)
        ordered = sorted(totals.items(), key=lambda item: (-item[1][1], item[0]))
        return [(label, number, cycles) for label, (number, cycles) in ordered[:count]]


@frozen
class PartCost:
    """One run of a part on one IPU, in tile clock cycles.

    `links` are the cycles to transfer `received_bytes` from other IPUs, or of an update's all-reduce of gradients.
    `streaming` are the cycles of transfers from and to streaming memory. `sync` includes the syncs between IPUs, which
    alone are `external_sync`.
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


@frozen
class TimedRow(Row):
    """A row of the schedule, the tile clock cycle at which it begins, and its number of cycles."""

    start: int
    cycles: int


@dataclass(frozen=True, slots=True, repr=False)
class IpuEstimate(Shown):
    """One IPU of a pipeline: the cost report of one run of each of its parts, with all waiting values in its memory.

    `stash_bytes` are the values on its tiles that wait for later parts. `streamed_bytes` are those in streaming memory,
    with offloaded optimizer state and sums of gradients. `busy` is its cycles in a step. `waits` is the share of the
    step, without the update, in which it is idle.
    """

    ipu: int
    stages: tuple[int, ...]
    estimate: StepCosts
    stash_bytes: int
    busy: int
    waits: float
    streamed_bytes: int = 0

    @property
    def bytes(self) -> int:
        """Bytes on all tiles at the peak."""
        memory = self.estimate.memory
        return round(memory.peak_mean * self.estimate.target.tiles)

    @property
    def fits(self) -> bool:
        return self.estimate.fits

    def table(self) -> str:
        """One line: bytes of the fullest tile, and the share of the time in which the IPU waits."""
        memory, capacity = self.estimate.memory, self.estimate.target.bytes_per_tile
        verdict = "fits" if self.fits else f"DOES NOT FIT, {memory.peak_fullest - capacity:,} bytes over"
        return (
            f"IPU {self.ipu}: fullest tile at {memory.peak_fullest / capacity:.1%} of {capacity:,} bytes, {verdict}; "
            f"waits {self.waits:.0%}"
        )


@dataclass(frozen=True, slots=True, repr=False)
class PipelineEstimate(Phases, Shown):
    """One execution of a pipeline on one replica: `micro_batches` through all `stages`, and the update.

    `compute`, `exchange` and `sync` are sums over the longest row of each slot: they add up to the step, from the first
    micro-batch to the end of the update. Exchange includes transfers between IPUs and with streaming memory.
    `between_ipus` are the cycles of transfers and syncs between IPUs, which the sums include. `period` is the cycles
    per micro-batch while the pipeline is full. `critical` has the cost of the longest row of each slot. Each stage adds
    up `gradient_bytes` over replicas, in sums of `gradient_sums` bytes.
    """

    schedule: str
    stages: int
    micro_batches: int
    training: bool
    parts: tuple[PartCost, ...]
    rows: tuple[TimedRow, ...]
    ipus: tuple[IpuEstimate, ...]
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
    def fits(self) -> bool:
        """Whether every IPU has the capacity for its arrays."""
        return all(each.fits for each in self.ipus)

    @property
    def bubbles(self) -> dict[int, float]:
        """Share of the step's cycles, without the update, in which each IPU waits."""
        return {each.ipu: each.waits for each in self.ipus}

    @property
    def bubble_share(self) -> float:
        """The mean of `bubbles` over all IPUs."""
        return sum(self.bubbles.values()) / len(self.ipus)

    @property
    def works(self) -> tuple[int, ...]:
        """Cycles of each stage for a micro-batch, forward and backward."""
        parts = [part for part in self.parts if part.kind != "update"]
        return tuple(sum(part.cycles for part in parts if part.stage == stage) for stage in range(self.stages))

    def part(self, kind: Kind, stage: int) -> PartCost:
        """The cost of a part; zero cost if it does not exist."""
        return next((p for p in self.parts if (p.kind, p.stage) == (kind, stage)), PartCost(kind, stage))

    def table(self) -> str:
        """One line for each stage, then one for each IPU; at most 88 characters wide."""
        what = "update" if self.training else "execution"
        lines = [
            f"Pipeline: {self.schedule}, {self.stages} stages, {self.micro_batches} micro-batches, "
            f"{self.cycles:,} cycles for each {what}",
            f"{'stage':>5} {'IPU':>5} {'forward':>12} {'backward':>12} {'update':>12} {'from links':>12} {'share':>6}",
        ]
        on = {stage: each.ipu for each in self.ipus for stage in each.stages}
        works = self.works
        for stage in range(self.stages):
            forward, update = self.part("forward", stage), self.part("update", stage)
            backward = [self.part(kind, stage) for kind in ("recompute", "backward")]
            lines.append(
                f"{stage:>5} {on[stage]:>5} {forward.cycles:>12,} {sum(p.cycles for p in backward):>12,} "
                f"{update.cycles:>12,} {forward.links + sum(p.links for p in backward):>12,} "
                f"{works[stage] / max(1, sum(works)):>6.0%}"
            )
        return "\n".join([*lines, *(each.table() for each in self.ipus)])
