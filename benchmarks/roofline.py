"""The roofline of a step: for each compute set its operations or its bytes, whichever take longer, and a barrier.

Operations are those of `benchmarks.arithmetic`, at the rate of a loop of multiply-adds.

Each operand of a compute set is moved once. Its bytes come from the nearest cache that holds everything that the step
has touched since it was touched last, at the rate of a loop that does nothing but read or stream arrays of that size.
What the first-level cache holds is free.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from pathlib import Path

import numpy as np

from benchmarks import peaks
from benchmarks.kernels import MIB, Kernel, of_codelet
from engine.machine_code.caches import UNITS, second_level
from engine.program.buffer import Buffer
from engine.program.program import ComputeSet
from engine.runtime.executor import RowKind, control_row, step_table

FIRST_LEVEL = 1 << 15
"""Bytes of a core's first-level cache: no processor with vectors has less."""
LAST_LEVEL = Path("/sys/devices/system/cpu/cpu0/cache/index3/size")
MEMORY = 128 * MIB
"""Bytes of a stream from memory."""
BARRIERS = 16


@dataclass(frozen=True, slots=True)
class Roofs:
    """The rates that some workers of a machine reach together, by the nanosecond."""

    workers: int
    multiply_adds: float
    levels: tuple[tuple[float, float], ...]
    """Bytes that a level holds for all workers, and bytes a nanosecond from it, nearest first."""
    barrier: float
    """A barrier's nanoseconds."""


@dataclass(frozen=True, slots=True)
class SetBound:
    """The least nanoseconds of one call of a compute set, by cause."""

    compute_set: ComputeSet
    arithmetic: float
    memory: float
    barrier: float

    @property
    def nanoseconds(self) -> float:
        """The compute set's bound."""
        return max(self.arithmetic, self.memory) + self.barrier

    @property
    def cause(self) -> str:
        """The resource that takes longer."""
        return "memory" if self.memory > self.arithmetic else "operations"


def last_level() -> int:
    """Bytes of the last-level cache, by Linux; 8 MiB where it does not say."""
    try:
        size = LAST_LEVEL.read_text().strip()
        return int(size[:-1]) * UNITS[size[-1]]
    except (OSError, ValueError, KeyError, IndexError):
        return 8 * MIB


def measured_roofs(workers: int, rounds: int, nanoseconds: float) -> Roofs:
    """Measures what workers reach in turn; `nanoseconds` are those of a tick. The fastest of all rounds counts."""
    seed = np.array([1], np.int64)
    peak = of_codelet("peak", peaks.peak_multiply_adds(), peaks.peak.address, seed, 0)
    holds = [workers * second_level(), max(last_level(), 2 * workers * second_level()), inf]
    sizes = [holds[0] // 2, min(holds[1] // 2, 4 * holds[0]), MEMORY]
    flows = [_flows(int(size)) for size in sizes]
    barriers = Kernel("barriers", 1.0, lambda count: step_table([control_row(RowKind.SYNC, count)] * BARRIERS, count))
    for _ in range(rounds):
        for kernel in (peak, *(each for flow in flows for each in flow), *[barriers] * (workers > 1)):
            kernel.time(workers)
    rates = [max(each.rate(workers) for each in flow) / nanoseconds for flow in flows]
    barrier = nanoseconds * barriers.least[workers] / BARRIERS if workers > 1 else 0.0
    return Roofs(workers, workers * peak.rate(workers) / nanoseconds, tuple(zip(holds, rates, strict=True)), barrier)


def _flows(size: int) -> list[Kernel]:
    """A loop that reads and writes arrays of together `size` bytes, and one that reads one of them."""
    flow = peaks.Stream(size // 4)
    read = flow.parameters[:1].copy()
    return [
        of_codelet("stream", flow.bytes, peaks.stream.address, flow.parameters, flow.units, flow),
        of_codelet("read", 4 * peaks.CHUNK * flow.units, peaks.read.address, read, flow.units, flow),
    ]


def bounds_of(
    sets: list[ComputeSet], roofs: Roofs, arena_bytes: int, operations: Callable[[ComputeSet], int]
) -> list[SetBound]:
    """The bounds of a step's compute sets, in order, for a call of each; the program's arrays share `arena_bytes`."""
    return [
        SetBound(
            each,
            operations(each) / roofs.multiply_adds * (roofs.workers if each.one_worker else 1),
            memory,
            roofs.barrier,
        )
        for each, memory in zip(sets, _moved(sets, roofs, arena_bytes), strict=True)
    ]


def _moved(sets: list[ComputeSet], roofs: Roofs, arena_bytes: int) -> list[float]:
    """Nanoseconds in which the operands of each compute set are moved, in a step that follows another like it."""
    recent: dict[Buffer, int] = {}
    for _ in range(2):
        moved = [_moved_by(each, recent, roofs, arena_bytes) for each in sets]
    return moved


def _moved_by(compute_set: ComputeSet, recent: dict[Buffer, int], roofs: Roofs, arena_bytes: int) -> float:
    """Nanoseconds for the operands of one compute set, whose buffers become the last of the `recent` ones."""
    read, taken = {span.buffer for span in compute_set.reads}, 0.0
    for span in (*compute_set.reads, *compute_set.writes):
        buffer, size = span.buffer, span.slot.bytes if span.slot else span.buffer.shape.bytes
        if 0 < compute_set.work_estimate.lookups < (*buffer.shape.dimensions, 1)[0]:
            continue  # a few rows of a table
        # Results need not come from anywhere: others' memory, in any cache, is overwritten.
        distance = _distance(recent, buffer, arena_bytes) if buffer in read else float(size)
        taken += _time(size, distance, roofs)
        recent.pop(buffer, None)
        recent[buffer] = size
    return taken


def _distance(recent: dict[Buffer, int], buffer: Buffer, arena_bytes: int) -> float:
    """Bytes touched since a buffer was touched, with its own; infinite if it never was."""
    arena = others = 0
    for each in reversed(recent):
        if each.kind == "arena":
            arena += recent[each]
        else:
            others += recent[each]
        if each is buffer:
            return min(arena, arena_bytes) + others
    return inf


def _time(size: int, distance: float, roofs: Roofs) -> float:
    if distance <= roofs.workers * FIRST_LEVEL:
        return 0.0
    return size / next(rate for holds, rate in roofs.levels if distance <= holds)
