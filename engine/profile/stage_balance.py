"""Cut a chain of layers into the pipeline stages with the shortest period that fit in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from math import ceil, inf

import numpy as np

from engine.frozen import frozen
from engine.partition.schedule import Kind, Recomputation, Schedule, ScheduleKind, devices_of, make_schedule
from engine.profile.links import Selection, link_rate
from engine.profile.options import SelectionOrder
from engine.profile.schedule_timing import ScheduleTiming, lay_out
from engine.profile.step_costs import PartCost
from engine.target import Target

PARTS: tuple[Kind, ...] = ("forward", "recompute", "backward")
USABLE = 0.9
"""Share of an IPU's memory that estimates may fill."""


@frozen
class LayerCost:
    """Cost of a layer, or of one of its calls, for one micro-batch.

    Cycles are those of its parts and of its `update`. `bytes` are always live: weights, optimizer state and sums of
    gradients. `gradient_bytes` are those of its sums of gradients.
    """

    name: str
    forward: int
    backward: int
    always_bytes: int
    update: int = 0
    gradient_bytes: int = 0


@frozen
class Crossing:
    """A value of `bytes` bytes that parts of several layers read.

    The forward part of layer `made` computes it, or the backward part if it `is_gradient`. Its readers are the forward
    parts of layers `forward` and the backward parts of layers `backward`. `copy` is the cycles to store it in its
    stash, and also to load it from there.
    """

    bytes: int
    made: int
    forward: tuple[int, ...] = ()
    backward: tuple[int, ...] = ()
    is_gradient: bool = False
    copy: int = 0


@dataclass(frozen=True, eq=False)
class LayerProfile:
    """A model as layers in order, and the values between them.

    `uncut` are the layers at which no stage may begin, because earlier and later layers share weights.
    """

    layers: tuple[LayerCost, ...]
    crossings: tuple[Crossing, ...]
    uncut: frozenset[int] = frozenset()
    training: bool = True

    @cached_property
    def flows(self) -> Flows:
        """Bytes that enter and wait in any run of layers."""
        return Flows(len(self.layers), self.crossings)


class Flows:
    """Bytes of a micro-batch for each run of layers, int64 [n + 1, n + 1] by first layer and the one after the last.

    Bytes arrive for the forward part, or for the backward part alone. Bytes wait for the backward part: all of them, or
    only those that arrived if activations are recomputed. Copies of waiting values take cycles.
    """

    def __init__(self, layers: int, crossings: Sequence[Crossing]) -> None:
        first, end = np.arange(layers + 1)[:, None], np.arange(layers + 1)[None, :]
        zero = np.zeros((layers + 1, layers + 1), np.int64)
        self.forward, self.backward, self.waiting, self.arrived = (zero.copy() for _ in range(4))
        self.copies, self.copies_arrived = zero.copy(), zero.copy()
        for each in crossings:
            inside = (first <= each.made) & (each.made < end)
            ahead = _next(each.forward, layers)[:, None] < end
            behind = _next(each.backward, layers)[:, None] < end
            if each.is_gradient:
                self.backward += each.bytes * (behind & ~inside)
                continue
            arrives = ahead & ~inside
            self.forward += each.bytes * arrives
            self.backward += each.bytes * (behind & ~inside & ~ahead)
            waits = behind & (inside | arrives)
            self.waiting += each.bytes * waits
            self.arrived += each.bytes * arrives
            self.copies += each.copy * waits
            self.copies_arrived += each.copy * arrives


def _next(readers: Sequence[int], layers: int) -> np.ndarray:
    """The first reader at or after each layer, int64; without one `layers` + 1, which no run reaches."""
    found = np.full(layers + 1, layers + 1)
    for reader in sorted(readers, reverse=True):
        found[: reader + 1] = reader
    return found


@frozen
class StageCost:
    """The layers first <= k < end as a stage.

    Cycles are those of its parts, transfers from other IPUs included. `bytes` are those on its IPU, of which
    `stash_bytes` wait for the backward part.
    """

    stage: int
    first: int
    end: int
    forward: int
    recompute: int
    backward: int
    bytes: int
    stash_bytes: int

    def cycles(self, kind: Kind) -> int:
        return {"forward": self.forward, "recompute": self.recompute, "backward": self.backward}.get(kind, 0)


@frozen
class Balance:
    """Stages in order. `period` is the cycles per micro-batch while the pipeline is full."""

    schedule: Schedule
    stages: tuple[StageCost, ...]
    period: int

    @property
    def cuts(self) -> tuple[int, ...]:
        """The first layer of each stage but the first."""
        return tuple(stage.first for stage in self.stages[1:])

    def stage_of(self, layer: int) -> int:
        """The stage of a layer."""
        return next(stage.stage for stage in self.stages if stage.first <= layer < stage.end)


class Balancer:
    """A search for the best cuts of a model into `stages` stages of a schedule, each on an IPU of its own."""

    def __init__(
        self,
        profile: LayerProfile,
        stages: int,
        target: Target,
        *,
        kind: ScheduleKind = "Grouped",
        micro_batches: int | None = None,
        recomputation: Recomputation = "none",
        order: SelectionOrder = "AUTO",
    ) -> None:
        self.profile, self.target, self.stages = profile, target, stages
        self.selection = Selection(order, stages)
        devices = devices_of(stages, None)
        mode: Recomputation = recomputation if profile.training else "none"
        count = micro_batches or 2 * stages
        self.schedule = make_schedule(kind, devices, count, training=profile.training, recomputation=mode)
        self.depths = self.schedule.stash_depths()
        names = "forward", "backward", "always_bytes"
        sums = (np.cumsum([0, *(getattr(each, name) for each in profile.layers)]) for name in names)
        # Those of each run of layers, by first layer and the one after the last.
        self._forward, self._backward, self._always = (each[None, :] - each[:, None] for each in sums)
        self._sync = target.external_sync_cycles(stages) if stages > 1 else 0
        phases: dict[int, list[tuple[Kind, int]]] = {}
        for part in self.schedule.parts:
            phases.setdefault(part.start % self.schedule.period, []).append((part.kind, part.stage))
        # Parts that run alone add to the period; of parts that run concurrently only the longest does.
        self._shared = sorted(phase for phase, parts in phases.items() if len(parts) > 1)
        self._phase = {part: phase for phase, parts in phases.items() for part in parts}
        self._runs = cache(self._runs_of)

    def stage(self, stage: int, first: int, end: int) -> StageCost:
        """The cost of layers first <= k < end as a stage."""
        runs = self._runs(stage)
        sizes = (*(runs.cycles[kind] for kind in PARTS), runs.bytes, runs.stash_bytes)
        return StageCost(stage, first, end, *(int(size[first, end]) for size in sizes))

    def layout(self, balance: Balance) -> ScheduleTiming:
        """Lay out the schedule of the stages in time, without the update."""
        costs = {(k, s.stage): PartCost(k, s.stage, s.cycles(k)) for s in balance.stages for k in PARTS}
        return lay_out(balance.schedule, costs)

    def best(self, limit: float = inf) -> Balance | None:
        """The cuts of the shortest period whose stages take at most `limit` bytes each; None if there are none.

        Dynamic programming over the end of each stage keeps a Pareto front over phases: a stage that is long in one
        phase may be the best with the stages that follow.
        """
        bound = self._search(limit, inf, greedy=True)
        return None if bound is None else self._search(limit, bound.period, greedy=False)

    def _search(self, limit: float, longest: float, *, greedy: bool) -> Balance | None:
        """The best cuts with a period of at most `longest`; a `greedy` search keeps one candidate for each end."""
        layers = len(self.profile.layers)
        ends = [k for k in range(1, layers) if k not in self.profile.uncut] + [layers]
        fronts: list[dict[int, Front]] = [{0: Front(np.zeros((1, len(self._shared) + 2)), np.zeros((1, 2), np.int64))}]
        for stage in range(self.stages):
            runs, found = self._runs(stage), dict[int, Front]()
            for end in ends if stage + 1 < self.stages else [layers]:
                fits = [first for first in fronts[-1] if first < end and runs.bytes[first, end] <= limit]
                if fits:
                    front = self._extended(stage, [fronts[-1][first] for first in fits], fits, end)
                    kept = front.best(longest, greedy)
                    if len(kept.cycles):
                        found[end] = kept
            fronts.append(found)
        if layers not in fronts[-1]:
            return None
        front, position = fronts[-1][layers], int(np.lexsort(fronts[-1][layers].order())[0])
        period = int(front.periods()[position])
        stages, end = [], layers
        for stage in reversed(range(self.stages)):
            first, position = (int(number) for number in fronts[stage + 1][end].parents[position])
            stages.append(self.stage(stage, first, end))
            end = first
        return Balance(self.schedule, tuple(reversed(stages)), period)

    def _extended(self, stage: int, fronts: Sequence[Front], firsts: Sequence[int], end: int) -> Front:
        """Extend all candidates up to the beginnings `firsts` of a stage by the stage that ends at `end`."""
        runs, sizes = self._runs(stage), [len(front.cycles) for front in fronts]
        cycles = np.concatenate([front.cycles for front in fronts])
        starts = np.repeat(firsts, sizes)
        parents = np.stack([starts, np.concatenate([np.arange(size) for size in sizes])], axis=1)
        for kind in PARTS:
            phase = self._phase.get((kind, stage))
            taken = runs.cycles[kind][starts, end]
            if phase in self._shared:
                at = 1 + self._shared.index(phase)
                cycles[:, at] = np.maximum(cycles[:, at], taken)
            elif phase is not None:
                cycles[:, 0] += taken
        if not self._shared:
            # No two stages run concurrently, so cuts differ little in time: of equal ones the most even wins.
            cycles[:, -1] = np.maximum(cycles[:, -1], runs.bytes[starts, end])
        return Front(cycles, parents)

    def _runs_of(self, stage: int) -> Runs:
        """The cost of each run of layers as a stage."""
        flows, training = self.profile.flows, self.profile.training
        again = self.schedule.recomputation if stage + 1 < self.stages else "none"
        forward, backward, always = self._forward, self._backward, self._always
        came, nothing = self._links(flows.forward, stage - 1, stage), np.zeros_like(forward)
        if not training:
            inference = {"forward": forward + came + self._sync, "recompute": nothing, "backward": nothing}
            return Runs(inference, always + flows.forward, nothing)
        kept, copies = (flows.arrived, flows.copies_arrived) if again != "none" else (flows.waiting, flows.copies)
        copies = np.where(copies > 0, copies + self.target.superstep_sync, 0)
        went = self._links(flows.backward, stage + 1, stage)
        recompute = forward + self._sync if again == "then_backpropagate" else nothing
        within = forward if again == "with_backpropagation" else nothing
        cycles = {
            "forward": forward + came + self._sync + copies,
            "recompute": recompute,
            "backward": backward + went + self._sync + copies + within,
        }
        stash = kept * self.depths[stage]
        return Runs(cycles, always + stash + flows.waiting, stash)

    def _links(self, sizes: np.ndarray, source: int, destination: int) -> np.ndarray:
        rate = link_rate(max(0, source), destination, self.target, self.selection)
        return np.ceil(sizes / rate * self.target.clock_hz).astype(np.int64)


@frozen
class Runs:
    """Cost of each run of layers as a certain stage, int64 [n + 1, n + 1] by first layer and the one after the last.

    It has cycles by kind of part, bytes, and waiting bytes.
    """

    cycles: Mapping[str, np.ndarray]
    bytes: np.ndarray
    stash_bytes: np.ndarray


@frozen
class Front:
    """Candidate cuts of the layers up to one of them.

    Columns of `cycles` are the sum of the phases in which a stage runs alone, the longest stage of each shared phase,
    and a tie-breaker. Columns of `parents` are the first layer of the last stage, and the index of the candidate up to
    it.
    """

    cycles: np.ndarray
    parents: np.ndarray

    def periods(self) -> np.ndarray:
        return self.cycles[:, :-1].sum(axis=1)

    def order(self) -> tuple[np.ndarray, ...]:
        """Keys for lexsort, which put the shortest period first."""
        return (self.cycles[:, -1], self.periods())

    def best(self, longest: float, only_one: bool) -> Front:
        """The Pareto front of the candidates with a period of at most `longest`, or the first of it if `only_one`."""
        rows = np.lexsort(self.order())
        rows = rows[self.periods()[rows] <= longest]
        kept: list[int] = []
        while len(rows):
            kept.append(int(rows[0]))
            if only_one:
                break
            rows = rows[(self.cycles[rows] < self.cycles[rows[0]]).any(axis=1)]
        return Front(self.cycles[kept], self.parents[kept])


def usable_bytes(target: Target) -> int:
    """Bytes of an IPU that estimates may fill: arrays are never even enough over the tiles to use all of them."""
    return ceil(target.tiles * target.bytes_per_tile * USABLE)
