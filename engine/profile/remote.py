"""Streaming memory: offloaded optimizer state and sums of gradients, and the cost of their transfers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from engine.frozen import frozen
from engine.profile.categories import OPTIMIZER_STATE
from engine.profile.loops import copied, runs_of
from engine.profile.names import ACCUMULATOR
from engine.profile.options import GRADIENT_ACCUMULATORS, OPTIMIZER_STATE_VARIABLES, Assumptions
from engine.program.program import Buffer, Program
from engine.target import Target


@frozen
class RemoteMemory:
    """Streaming memory of an IPU: `bytes` by kind, and the bytes that a step moves from there and back.

    State is distributed among replicas: `gathered_bytes` come from the others in addition.
    """

    bytes: dict[str, int] = field(default_factory=dict)
    moved_bytes: int = 0
    gathered_bytes: int = 0

    def cycles(self, target: Target) -> int:
        """Cycles of a step's transfers in sequence."""
        seconds = self.moved_bytes / target.streaming_memory_bytes_per_second
        seconds += self.gathered_bytes / target.link_bytes_per_second
        return -int(-seconds * target.clock_hz // 1)


def offloaded_buffers(
    names: dict[Buffer, str], categories: dict[Buffer, str], assumptions: Assumptions
) -> dict[Buffer, str]:
    """The offloaded arrays, each with its kind; single elements and arrays below `minimum_remote_bytes` stay."""
    found, least = {}, assumptions.optimizations.minimum_remote_bytes
    for buffer, category in categories.items():
        if category != OPTIMIZER_STATE or buffer.shape.elements <= 1 or buffer.shape.bytes < least:
            continue
        is_sum = names.get(buffer, "").startswith(ACCUMULATOR)
        kind = GRADIENT_ACCUMULATORS if is_sum else OPTIMIZER_STATE_VARIABLES
        if kind in assumptions.offloaded:
            found[buffer] = kind
    return found


def uses_of(program: Program, buffers: dict[Buffer, str], stands: Mapping[Buffer, Buffer]) -> dict[Buffer, list[int]]:
    """The compute sets that access each of the arrays, in order.

    `stands` maps a loop state to the variable that it holds. A copy between the two counts as no access.
    """
    found: dict[Buffer, list[int]] = {buffer: [] for buffer in buffers}
    for at, compute_set in enumerate(program.compute_sets):
        touched = [stands.get(span.buffer, span.buffer) for span in (*compute_set.reads, *compute_set.writes)]
        if copied(compute_set) is not None and touched[0] is touched[1]:
            continue
        for buffer in set(touched) & found.keys():
            found[buffer].append(at)
    return found


def remote_memory(
    program: Program,
    buffers: dict[Buffer, str],
    assumptions: Assumptions,
    uses: Mapping[Buffer, Sequence[int]],
    stands: Mapping[Buffer, Buffer],
) -> RemoteMemory:
    """Cost of offloading; optimizer state is distributed among `assumptions.state_shards` replicas.

    `uses` is the result of `uses_of`, `stands` its argument.
    """
    if not buffers:
        return RemoteMemory()
    runs, divided = runs_of(program), (assumptions.state_shards, assumptions.state_interval)
    held: dict[str, int] = {}
    moved = gathered = 0
    for at, compute_set in enumerate(program.compute_sets):
        for span in (*compute_set.reads, *compute_set.writes):
            buffer = stands.get(span.buffer, span.buffer)
            kind = buffers.get(buffer)
            if kind is not None and at in uses[buffer]:
                parts, interval = divided if kind == OPTIMIZER_STATE_VARIABLES else (1, 1)
                size = -(-runs[at] // interval) * span.buffer.shape.bytes
                moved += -(-size // parts)
                gathered += size - -(-size // parts)
    for buffer, kind in buffers.items():
        parts, _ = divided if kind == OPTIMIZER_STATE_VARIABLES else (1, 1)
        held[kind] = held.get(kind, 0) + -(-buffer.shape.bytes // parts)
    return RemoteMemory(held, moved, gathered)


def stretches(uses: Sequence[int]) -> list[tuple[int, int]]:
    """First and last of each run of consecutive compute sets in `uses`, during which an array is on the tiles."""
    found: list[tuple[int, int]] = []
    for at in uses:
        if found and at <= found[-1][1] + 1:
            found[-1] = (found[-1][0], at)
        else:
            found.append((at, at))
    return found
