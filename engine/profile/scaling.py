"""Calculated scaling beyond one machine: a program on any number of replicas, and pipelines of any depth."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from textwrap import wrap
from typing import Literal

from engine.errors import ConfigurationError
from engine.frozen import frozen
from engine.partition.schedule import Recomputation, ScheduleKind
from engine.profile.links import GRADIENT_LINKS, all_reduce_each
from engine.profile.program_estimate import Estimate
from engine.profile.stage_balance import Balancer, LayerProfile, usable_bytes
from engine.shown import Shown
from engine.target import Target

Kind = Literal["weak", "strong"]
POWERS_OF_TWO = tuple(2**k for k in range(11))
"""1 to 1,024 replicas."""
IPUS_PER_MACHINE = 4
"""V: IPU-M2000 and Bow-2000 data sheets; a Pod of n has n IPUs."""


@frozen
class Workload:
    """A single replica of a program.

    A micro-batch of `samples` takes `work_seconds`. An update follows after `accumulation` micro-batches and takes
    `update_seconds`. A pipeline fills and drains in `ramp_seconds`.

    Replicas all-reduce `gradient_bytes`, the most of any of the `ipus_per_replica` IPUs, in sums of `gradient_sums`
    bytes (in one sum if these are unknown), `syncless` or not, in each of a step's `updates`. Host transfers of a
    micro-batch take `host_seconds`, concurrent with compute if `overlapped`. `bytes` are those on the fullest IPU.
    """

    samples: int
    work_seconds: float
    gradient_bytes: int
    accumulation: int = 1
    update_seconds: float = 0.0
    ramp_seconds: float = 0.0
    host_seconds: float = 0.0
    overlapped: bool = False
    ipus_per_replica: int = 1
    bytes: int = 0
    fits: bool = True
    gradient_sums: tuple[int, ...] = ()
    syncless: bool = False
    updates: int = 1


@frozen
class Prediction:
    """A prediction for a number of replicas.

    It has the seconds of an update and of its all-reduce of gradients, and samples per second. `efficiency` is the
    throughput per replica relative to the first prediction.
    """

    replicas: int
    ipus: int
    accumulation: float
    seconds: float
    samples_per_second: float
    gradient_seconds: float
    algorithm: str
    bytes: int
    fits: bool
    efficiency: float = 1.0

    @property
    def gradient_share(self) -> float:
        return self.gradient_seconds / self.seconds if self.seconds else 0.0


def workload_of(estimate: Estimate, gradient_bytes: int | None = None, accumulation: int = 1) -> Workload:
    """The workload of a program, from its cost report.

    The report's step is one update of `accumulation` micro-batches; a pipeline has its own number. `gradient_bytes` are
    those of the program (engine.profile.links.gradient_bytes); a pipeline's report has them.
    """
    clock, pipeline = estimate.target.clock_hz, estimate.pipeline
    if pipeline is None:
        alone = estimate.cycles - sum(estimate.between_ipus)
        return Workload(
            samples=estimate.samples_per_replica // accumulation,
            work_seconds=alone / accumulation / clock,
            gradient_bytes=gradient_bytes or 0,
            accumulation=accumulation,
            host_seconds=estimate.host / accumulation / clock,
            overlapped=estimate.assumptions.overlapped_io,
            bytes=estimate.memory.peak_fullest,
            fits=estimate.fits,
            gradient_sums=estimate.gradient_sums if sum(estimate.gradient_sums) == gradient_bytes else (),
            syncless=estimate.assumptions.optimizations.syncless_collectives,
            updates=estimate.updates,
        )
    updates = [part for part in pipeline.parts if part.kind == "update"]
    update = max((part.compute + part.exchange for part in updates), default=0)
    work = pipeline.micro_batches * pipeline.period
    alone = sum(row.cycles for row in pipeline.critical if row.kind != "update")
    return Workload(
        samples=estimate.samples_per_replica // pipeline.micro_batches,
        work_seconds=pipeline.period / clock,
        gradient_bytes=max(pipeline.gradient_bytes, default=0),
        accumulation=pipeline.micro_batches,
        update_seconds=update / clock,
        ramp_seconds=max(0, alone - work) / clock,
        host_seconds=estimate.host / pipeline.micro_batches / clock,
        overlapped=estimate.assumptions.overlapped_io,
        ipus_per_replica=len(pipeline.ipus),
        bytes=estimate.memory.peak_fullest,
        fits=estimate.fits,
        gradient_sums=max(pipeline.gradient_sums, key=sum, default=()),
        syncless=estimate.assumptions.optimizations.syncless_collectives,
    )


def predict(
    workload: Workload,
    target: Target,
    replicas: Iterable[int] = POWERS_OF_TWO,
    kind: Kind = "weak",
    accumulation: Sequence[float] | None = None,
) -> Predictions:
    """Predictions of a workload on each number of replicas.

    "weak" keeps the micro-batches of each replica, so the batch grows with their number. "strong" keeps the batch of
    the first prediction, so each replica has fewer micro-batches; a fraction of one takes that fraction of its time.
    `accumulation` states the micro-batches for each number of replicas instead. Raises ConfigurationError for numbers
    of replicas below 1.
    """
    counts = tuple(replicas)
    if not counts or min(counts) < 1:
        raise ConfigurationError(f"Expected numbers of replicas of at least 1. Received: {counts}. Nearest: 1.")
    accumulations = [workload.accumulation * (counts[0] / n if kind == "strong" else 1.0) for n in counts]
    if accumulation is not None:
        accumulations = list(accumulation)
    found = [_predicted(workload, target, n, each) for n, each in zip(counts, accumulations, strict=True)]
    alone = found[0].samples_per_second / counts[0]
    return Predictions((replace(e, efficiency=e.samples_per_second / e.replicas / alone) for e in found), target)


def _predicted(workload: Workload, target: Target, replicas: int, accumulation: float) -> Prediction:
    sizes = workload.gradient_sums or (workload.gradient_bytes,)
    sums = all_reduce_each(sizes, replicas, target, workload.ipus_per_replica, workload.syncless)
    summing = workload.updates * sums.seconds
    busy = accumulation * workload.work_seconds + workload.ramp_seconds + workload.update_seconds + summing
    host = accumulation * workload.host_seconds
    seconds = max(busy, host) if workload.overlapped else busy + host
    return Prediction(
        replicas=replicas,
        ipus=replicas * workload.ipus_per_replica,
        accumulation=accumulation,
        seconds=seconds,
        samples_per_second=accumulation * workload.samples * replicas / seconds,
        gradient_seconds=summing,
        algorithm=sums.algorithm,
        bytes=workload.bytes,
        fits=workload.fits,
    )


def workloads_by_depth(
    profile: LayerProfile,
    samples: int,
    target: Target,
    depths: Iterable[int] = (1, 2, 4, 8, 16),
    *,
    accumulation: int,
    schedule: ScheduleKind = "Grouped",
    recomputation: Recomputation = "none",
) -> tuple[Workload, ...]:
    """The workloads of a model's replicas as pipelines of each depth, balanced by estimate.

    `accumulation` is rounded up to a multiple that the schedule accepts. Depths above the number of layers are omitted.
    """
    found = []
    for depth in depths:
        if depth == 1:
            found.append(_unsplit(profile, samples, target, accumulation))
            continue
        unit = 2 * depth if schedule == "Grouped" else depth if schedule == "Interleaved" else 1
        count = -(-accumulation // unit) * unit
        balancer = Balancer(profile, depth, target, kind=schedule, micro_batches=count, recomputation=recomputation)
        limit = usable_bytes(target)
        balance = balancer.best(limit) or balancer.best()
        if balance is None:
            continue
        layers, clock = profile.layers, target.clock_hz
        held = max(stage.bytes for stage in balance.stages)
        gradients = [sum(each.gradient_bytes for each in layers[s.first : s.end]) for s in balance.stages]
        updates = [sum(each.update for each in layers[s.first : s.end]) for s in balance.stages]
        ramp = balancer.layout(balance).cycles - count * balance.period
        found.append(
            Workload(
                samples=samples,
                work_seconds=balance.period / clock,
                gradient_bytes=max(gradients),
                accumulation=count,
                update_seconds=max(updates) / clock,
                ramp_seconds=max(0, ramp) / clock,
                ipus_per_replica=depth,
                bytes=held,
                fits=held <= limit,
            )
        )
    return tuple(found)


def _unsplit(profile: LayerProfile, samples: int, target: Target, accumulation: int) -> Workload:
    layers, clock = profile.layers, target.clock_hz
    held = sum(each.always_bytes for each in layers) + int(profile.flows.waiting[0, len(layers)])
    return Workload(
        samples=samples,
        work_seconds=sum(each.forward + each.backward for each in layers) / clock,
        gradient_bytes=sum(each.gradient_bytes for each in layers),
        accumulation=accumulation,
        update_seconds=sum(each.update for each in layers) / clock,
        bytes=held,
        fits=held <= usable_bytes(target),
    )


class Predictions(tuple[Prediction, ...], Shown):
    """A tuple of predictions for one chip, `target`. Prompts and notebooks show it as a table."""

    target: Target

    def __new__(cls, predictions: Iterable[Prediction], target: Target) -> Predictions:
        made = super().__new__(cls, predictions)
        made.target = target
        return made

    def __getnewargs__(self) -> tuple[tuple[Prediction, ...], Target]:
        return tuple(self), self.target

    def table(self) -> str:
        """The predictions one per line, then their assumptions."""
        lines = [
            f"{'replicas':>8} {'IPUs':>6} {'accum.':>7} {'ms/update':>10} {'samples/s':>12} "
            f"{'gradients':>9} {'of first':>8}"
        ]
        for each in self:
            note = "" if each.fits else "  does not fit"
            lines.append(
                f"{each.replicas:>8,} {each.ipus:>6,} {each.accumulation:>7.4g} {each.seconds * 1e3:>10,.3f} "
                f"{each.samples_per_second:>12,.0f} {each.gradient_share:>9.1%} {each.efficiency:>8.2f}{note}"
            )
        return "\n".join([*lines, *wrap(assumptions_of(self.target), 88)])

    __repr__ = Shown.__repr__


def assumptions_of(target: Target) -> str:
    """The assumptions of predictions, with their sources."""
    ring = target.link_bytes_per_second * GRADIENT_LINKS / 1e9
    return (
        f"Assumed: gradients are summed by ring or binary tree, whichever is faster, over {ring:.1f} GB/s of IPU-Links "
        f"(4 of 10, D: the ladder's wiring) among {target.ipus_per_link_domain} IPUs, {IPUS_PER_MACHINE} to a machine; "
        f"beyond them shares of the sum go through GW-Links, {target.gateway_link_bytes_per_second / 1e9:.2f} GB/s for "
        f"each IPU (V: Bow-2000 data sheet) with {target.gateway_link_latency_seconds * 1e6:.2f} us of latency (not "
        f"published: a sync of 16 IPUs). The sums do not overlap compute; all replicas take equally long, and each has "
        f"a host link of its own."
    )
