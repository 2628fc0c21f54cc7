"""The account of a program: what a chip would spend on one step, in bytes and cycles, without running it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from engine.profile.collectives import all_reduce_cycles, gradient_sums
from engine.profile.exchange import Layouts
from engine.profile.liveness import LiveTensor, TileMemory
from engine.profile.loops import runs_of, unknown_loops
from engine.profile.memory import Memory, account_memory
from engine.profile.merging import merge_supersteps
from engine.profile.names import buffer_names, label_of
from engine.profile.operations import Operation, operation_of
from engine.profile.options import DEFAULT_ASSUMPTIONS, Assumptions
from engine.profile.remote import RemoteMemory
from engine.profile.streams import host_bytes, host_cycles, samples_of
from engine.profile.superstep import Superstep, superstep
from engine.profile.vertices import is_listed, work_of
from engine.program.program import ComputeSet, Program
from engine.shown import Shown
from engine.target import Target

if TYPE_CHECKING:
    from engine.profile.pipelines import PipelineAccount

logger = logging.getLogger("ipu")


@dataclass(frozen=True, slots=True)
class ComputeSetCost:
    """Cycles of one compute set, the tiles that work, and the bytes that live then and not always.

    Cycles are those of a whole step, in which a compute set inside a loop runs `runs` times; `operation` says what one
    run does, `method` by which vertex or plan, where there are several.
    """

    name: str
    label: str
    compute: int
    exchange: int
    sync: int
    tiles: int
    live_bytes: int
    runs: int = 1
    operation: Operation = Operation()
    method: str = ""

    @property
    def cycles(self) -> int:
        return self.compute + self.exchange + self.sync


@dataclass(frozen=True, slots=True, repr=False)
class Account(Shown):
    """One step on one target. Cycles are tile clock cycles; each replica is a chip and takes them side by side.

    `host_bytes` go from the host and to it: feeds and results, and the rows of queues, turn by turn.

    `assumed` are the opcodes that have no row of their own in the table of cycles. `unknown_loops` is the number of
    loops whose trip count shows only while they run: they count as if their body ran once.

    `gradient_sums` are the bytes of each sum of gradients over replicas.

    With a `pipeline`, memory and `costs` are those of the fullest of its IPUs, each part having run once; cycles,
    samples and transfers are of a whole step.
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
    pipeline: PipelineAccount | None = None
    gradient_sums: tuple[int, ...] = ()

    @property
    def compute(self) -> int:
        if self.pipeline is not None:
            return self.pipeline.compute
        return sum(cost.compute for cost in self.costs)

    @property
    def exchange(self) -> int:
        """On the chip, between chips, and with streaming memory."""
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
        """Compute, exchange and sync. The transfer of feeds and results is `host`."""
        return self.compute + self.exchange + self.sync

    @property
    def exposed_host(self) -> int:
        """Cycles by which host transfers lengthen the step; with overlapped I/O those that outlast the rest."""
        return max(0, self.host - self.cycles) if self.assumptions.overlapped_io else self.host

    @property
    def cycles_per_step(self) -> int:
        """From the beginning of a step to its end: `cycles` and `exposed_host`."""
        return self.cycles + self.exposed_host

    @property
    def seconds_per_step(self) -> float:
        """With the transfer of feeds and results, which runs beside the rest where I/O tiles overlap it."""
        return self.cycles_per_step / self.target.clock_hz

    @property
    def steps_per_second(self) -> float:
        return 1.0 / self.seconds_per_step if self.seconds_per_step else 0.0

    @property
    def samples_per_second(self) -> float:
        return self.steps_per_second * self.samples_per_replica * self.replicas

    @property
    def shares(self) -> dict[str, float]:
        """The parts of `cycles`, adding up to 1 unless nothing is done."""
        whole = max(1, self.cycles)
        return {part: getattr(self, part) / whole for part in ("compute", "exchange", "sync")}

    @property
    def fits(self) -> bool:
        """Whether all tiles hold what lies on them, of a pipeline those of every IPU."""
        return self.memory.peak_fullest <= self.target.bytes_per_tile

    def table(self) -> str:
        """What `engine.profile.summary` says."""
        # The summary rests on the errors of predictions, which rest on accounts.
        from engine.profile.summary import summary

        return summary(self)

    def top(self, count: int = 5) -> list[tuple[str, int, int]]:
        """The costliest compute sets as (name, how many of that name, cycles), those of one name together.

        Of a pipeline those of all IPUs, which work side by side.
        """
        totals: dict[str, tuple[int, int]] = {}
        for cost in self.costs if self.pipeline is None else self.pipeline.costs:
            number, cycles = totals.get(cost.label, (0, 0))
            totals[cost.label] = (number + 1, cycles + cost.cycles)
        ordered = sorted(totals.items(), key=lambda item: (-item[1][1], item[0]))
        return [(label, number, cycles) for label, (number, cycles) in ordered[:count]]


def account(
    program: Program,
    target: Target,
    replicas: int = 1,
    assumptions: Assumptions = DEFAULT_ASSUMPTIONS,
    planning: Sequence[Assumptions] | None = None,
) -> Account:
    """What one step of a program would take on a target.

    Work and arrays are mapped linearly (engine.profile.mapping), matrix products and convolutions by planners that
    keep to the options of `assumptions`, or for each compute set to those of `planning`. Each replica is one chip with
    the same program.
    """
    layouts = Layouts(program.compute_sets)
    steps = []
    computing = assumptions.compute_target(target)
    for number, compute_set in enumerate(program.compute_sets):
        options = assumptions if planning is None else planning[number]
        steps.append(superstep(compute_set, layouts, computing, options))
        layouts.write(compute_set)
    if assumptions.optimizations.merges:
        steps = merge_supersteps(program, steps, layouts, computing, assumptions, planning)
    held = account_memory(program, steps, target, layouts, assumptions)
    if assumptions.overlapped_io and not held.streams_fit:
        logger.warning(
            "Stream buffers need more than the I/O tiles may hold (%d tiles, io_tiles.available_memory_proportion %g): "
            "they are on the other tiles, and transfers from and to the host do not run beside compute.",
            *(assumptions.io_tiles, assumptions.io_tile_memory_proportion),
        )
        assumptions = replace(assumptions, overlapped_io=False)
    names = buffer_names(program)
    runs = [n * (1 + (at in held.again)) for at, n in enumerate(runs_of(program))]
    costs = tuple(
        _cost(s, c, label_of(s, names), live, n)
        for s, c, live, n in zip(program.compute_sets, steps, held.memory.live_bytes, runs, strict=True)
    )
    fed, returned = host_bytes(program)
    sums = gradient_sums(program, assumptions)
    return Account(
        program_name=program.name,
        target=target,
        replicas=replicas,
        memory=held.memory,
        tiles=held.tiles,
        liveness=held.liveness,
        costs=costs,
        between_ipus=all_reduce_cycles(sums, target, replicas, assumptions.optimizations.syncless_collectives),
        gradient_sums=sums,
        host_bytes=(fed, returned),
        host=host_cycles(fed, returned, target),
        samples_per_replica=samples_of(program),
        assumed=_assumed(program),
        unknown_loops=unknown_loops(program),
        assumptions=assumptions,
        remote=held.remote,
    )


def _cost(compute_set: ComputeSet, step: Superstep, label: str, live: int, runs: int) -> ComputeSetCost:
    cycles = (runs * step.compute, runs * step.exchange, runs * step.sync)
    done = operation_of(compute_set)
    return ComputeSetCost(compute_set.name, label, *cycles, step.tiles, live, runs, done, step.method)


def _assumed(program: Program) -> tuple[str, ...]:
    opcodes = {opcode for s in program.compute_sets for opcode, _ in work_of(s).operations}
    return tuple(sorted(opcode for opcode in opcodes if not is_listed(opcode)))
