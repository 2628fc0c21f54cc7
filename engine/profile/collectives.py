"""What several chips have to tell each other in a step: the sum of gradients over replicas."""

from __future__ import annotations

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
    """Exchange and sync cycles of a ring all-reduce of the gradients: each chip sends 2 (r - 1) / r of them."""
    if replicas <= 1:
        return 0, 0
    size = gradient_bytes(program)
    if size == 0:
        return 0, 0
    sent = 2 * (replicas - 1) / replicas * size
    cycles = sent / target.link_bytes_per_second * target.clock_hz
    return -int(-cycles // 1), 2 * (replicas - 1) * target.external_sync_cycles(replicas)
