"""Transfers between host and chip in a step: feeds and results, rows of queues, and arrays of host functions."""

from __future__ import annotations

from engine.profile.loops import runs_of
from engine.program.program import Program
from engine.program.work.custom_calls import HostCall
from engine.program.work.queues import InfeedCopy, InfeedRow, OutfeedCopy, OutfeedRow
from engine.target import Target

FROM_HOST, TO_HOST = (InfeedCopy, InfeedRow), (OutfeedCopy, OutfeedRow)


def host_bytes(program: Program) -> tuple[int, int]:
    """Bytes of a step from the host and to it. A loop with an unknown trip count counts as one iteration."""
    fed, returned = queue_bytes(program)
    fed += sum(buffer.shape.bytes for buffer in program.feeds.values())
    return fed, returned + sum(shape.bytes for shape in program.output_shapes)


def queue_bytes(program: Program) -> tuple[int, int]:
    """Bytes of a step from the host and to it through queues and calls of host functions."""
    if program.call is None:
        return 0, 0
    fed = returned = 0
    leaves = {leaf for queue in program.queues.values() for leaf in queue.leaves}
    for compute_set, runs in zip(program.compute_sets, runs_of(program), strict=True):
        if isinstance(compute_set.work, FROM_HOST):
            fed += runs * sum(span.buffer.shape.bytes for span in compute_set.reads if span.buffer in leaves)
        elif isinstance(compute_set.work, TO_HOST):
            returned += runs * sum(span.buffer.shape.bytes for span in compute_set.writes if span.buffer in leaves)
        elif isinstance(compute_set.work, HostCall):
            returned += runs * sum(shape.bytes for shape in compute_set.work.function.operands)
            fed += runs * sum(shape.bytes for shape in compute_set.work.function.results)
    return fed, returned


def host_cycles(fed: int, returned: int, target: Target) -> int:
    """Cycles to transfer `fed` bytes from the host and `returned` bytes to it."""
    seconds = fed / target.host_to_device_bytes_per_second + returned / target.device_to_host_bytes_per_second
    return -int(-seconds * target.clock_hz // 1)


def samples_of(program: Program) -> int:
    """Rows of the first feed that has some, else of the first infeed leaf that does, times its executions, else 1."""
    for number in sorted(program.feeds):
        shape = program.feeds[number].shape
        if shape.rank:
            return shape.dimensions[0]
    for compute_set, runs in zip(program.compute_sets, runs_of(program), strict=True):
        if isinstance(compute_set.work, FROM_HOST):
            for span in compute_set.reads:
                if any(span.buffer in queue.leaves for queue in program.queues.values()) and span.buffer.shape.rank:
                    return runs * span.buffer.shape.dimensions[0]
    return 1
