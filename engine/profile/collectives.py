"""Communication of several chips in a step: the sum of gradients over replicas."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil

from engine.profile.links import all_reduce_each, waiting_together
from engine.profile.options import Assumptions
from engine.program.program import Buffer, Program
from engine.target import Target


def gradient_sizes(program: Program) -> tuple[int, ...]:
    """Bytes of each gradient, in order: the arrays of a variable's size read by compute sets that update it."""
    found: dict[Buffer, int] = {}
    for compute_set in program.compute_sets:
        updated = {s.buffer.shape.elements for s in compute_set.writes if s.buffer.kind == "variable"}
        for span in compute_set.reads:
            if span.buffer.kind == "arena" and span.buffer.shape.elements in updated - {1}:
                found[span.buffer] = span.buffer.shape.bytes
    return tuple(found.values())


def gradient_bytes(program: Program) -> int:
    """Bytes of all gradients of a program."""
    return sum(gradient_sizes(program))


def gradient_sums(program: Program, assumptions: Assumptions) -> tuple[int, ...]:
    """Bytes of each sum of gradients over replicas."""
    return waiting_together(gradient_sizes(program), assumptions.optimizations.cross_replica_sum_bytes)


def all_reduce_cycles(sums: Iterable[int], target: Target, replicas: int, syncless: bool = False) -> tuple[int, int]:
    """Exchange and sync cycles of sums over replicas, `sums` in bytes (engine.profile.links)."""
    found = all_reduce_each(sums, replicas, target, syncless=syncless)
    return ceil(found.transfer * target.clock_hz), ceil(found.syncs * target.clock_hz)
