"""The account of a program: what a chip would spend on one step, in bytes and cycles, without running it."""

from __future__ import annotations

from dataclasses import dataclass

from engine.errors import OutOfTileMemory
from engine.profile.collectives import all_reduce_cycles
from engine.profile.exchange import Layouts
from engine.profile.loops import runs_of, unknown_loops
from engine.profile.memory import Memory, account_memory, buffer_names, label_of
from engine.profile.streams import host_bytes, host_cycles, samples_of
from engine.profile.superstep import superstep
from engine.profile.vertices import is_listed, work_of
from engine.program.program import Program
from engine.target import Target


@dataclass(frozen=True, slots=True)
class ComputeSetCost:
    """Cycles of one compute set, the tiles that work, and the bytes that live then and not always.

    Cycles are those of a whole step, in which a compute set inside a loop runs `runs` times.
    """

    name: str
    label: str
    compute: int
    exchange: int
    sync: int
    tiles: int
    live_bytes: int
    runs: int = 1

    @property
    def cycles(self) -> int:
        return self.compute + self.exchange + self.sync


@dataclass(frozen=True, slots=True)
class Account:
    """One step on one target. Cycles are tile clock cycles; each replica is a chip and takes them side by side.

    `host_bytes` go from the host and to it: feeds and results, and the rows of queues, turn by turn.

    `assumed` are the opcodes that have no row of their own in the table of cycles. `unknown_loops` is the number of
    loops whose trip count shows only while they run: they count as if their body ran once.
    """

    program_name: str
    target: Target
    replicas: int
    memory: Memory
    costs: tuple[ComputeSetCost, ...]
    between_ipus: tuple[int, int]
    host_bytes: tuple[int, int]
    host: int
    samples_per_replica: int
    assumed: tuple[str, ...]
    unknown_loops: int = 0

    @property
    def compute(self) -> int:
        return sum(cost.compute for cost in self.costs)

    @property
    def exchange(self) -> int:
        """On the chip, and between chips."""
        return sum(cost.exchange for cost in self.costs) + self.between_ipus[0]

    @property
    def sync(self) -> int:
        return sum(cost.sync for cost in self.costs) + self.between_ipus[1]

    @property
    def cycles(self) -> int:
        """Compute, exchange and sync. The transfer of feeds and results is `host`."""
        return self.compute + self.exchange + self.sync

    @property
    def seconds_per_step(self) -> float:
        """With the transfer of feeds and results."""
        return (self.cycles + self.host) / self.target.clock_hz

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
        return self.memory.peak_fullest <= self.target.bytes_per_tile

    def top(self, count: int = 5) -> list[tuple[str, int, int]]:
        """The costliest compute sets as (name, how many of that name, cycles), those of one name together."""
        totals: dict[str, tuple[int, int]] = {}
        for cost in self.costs:
            number, cycles = totals.get(cost.label, (0, 0))
            totals[cost.label] = (number + 1, cycles + cost.cycles)
        ordered = sorted(totals.items(), key=lambda item: (-item[1][1], item[0]))
        return [(label, number, cycles) for label, (number, cycles) in ordered[:count]]


def account(program: Program, target: Target, replicas: int = 1, partials_type: str = "f32") -> Account:
    """What one step of a program would take on a target.

    Work and arrays are mapped linearly (engine.profile.mapping), matrix products by a small planner; partial sums of
    fp16 products are "f32", Poplar's default, or "f16". Each replica is one chip with the same program.
    """
    layouts = Layouts(program.compute_sets)
    steps = []
    for compute_set in program.compute_sets:
        steps.append(superstep(compute_set, layouts, target, partials_type))
        layouts.write(compute_set)
    memory = account_memory(program, steps, target)
    names = buffer_names(program)
    costs = tuple(
        ComputeSetCost(s.name, label_of(s, names), n * c.compute, n * c.exchange, n * c.sync, c.tiles, live, n)
        for s, c, live, n in zip(program.compute_sets, steps, memory.live_bytes, runs_of(program), strict=True)
    )
    fed, returned = host_bytes(program)
    return Account(
        program_name=program.name,
        target=target,
        replicas=replicas,
        memory=memory,
        costs=costs,
        between_ipus=all_reduce_cycles(program, target, replicas),
        host_bytes=(fed, returned),
        host=host_cycles(fed, returned, target),
        samples_per_replica=samples_of(program),
        assumed=_assumed(program),
        unknown_loops=unknown_loops(program),
    )


def check_fit(account: Account) -> None:
    """Raises OutOfTileMemory for a program that the tiles cannot hold; says which tile, by how much and why."""
    if account.fits:
        return
    memory, target = account.memory, account.target
    over = memory.peak_fullest - target.bytes_per_tile
    where = account.costs[memory.peak_at].label if account.costs else "the start"
    tensors = "; ".join(f"{t.name} {t.shape}, {t.bytes:,} bytes" for t in memory.largest[:3])
    chips = -(-memory.peak_fullest // target.bytes_per_tile)
    raise OutOfTileMemory(
        f"Expected at most {target.bytes_per_tile:,} bytes on each tile of {target.name}. Received: "
        f"{memory.peak_fullest:,} bytes on tile {memory.peak_tile} at {where}, {over:,} bytes over "
        f"({memory.always_live_fullest:,} bytes of the fullest tile are always live). "
        f"The three largest tensors: {tensors}. What to change: a smaller batch; recomputation of activations; "
        f"gradient accumulation with a smaller micro-batch; half precision; "
        f"or pipelining over more IPUs, at least {chips}."
    )


def _assumed(program: Program) -> tuple[str, ...]:
    opcodes = {opcode for s in program.compute_sets for opcode, _ in work_of(s).operations}
    return tuple(sorted(opcode for opcode in opcodes if not is_listed(opcode)))
