"""What several chips have to tell each other in a step: the sum of gradients over replicas."""

from __future__ import annotations

from math import ceil

from engine.profile.links import all_reduce
from engine.program.program import Buffer, Program
from engine.target import Target


def gradient_bytes(program: Program) -> int:
    """Bytes of arrays of a variable's size that the compute sets which update that variable read."""
    found: dict[Buffer, int] = {}
    for compute_set in program.compute_sets:
        updated = {s.buffer.shape.elements for s in compute_set.writes if s.buffer.kind == "variable"}
        for span in compute_set.reads:
            if span.buffer.kind == "arena" and span.buffer.shape.elements in updated - {1}:
                found[span.buffer] = span.buffer.shape.bytes
    return sum(found.values())


def all_reduce_cycles(program: Program, target: Target, replicas: int) -> tuple[int, int]:
    """Exchange and sync cycles of the sum of the gradients over replicas (engine.profile.links)."""
    found = all_reduce(gradient_bytes(program), replicas, target)
    return ceil(found.transfer * target.clock_hz), ceil(found.syncs * target.clock_hz)
