"""Producers fused into their consumers: each unit of a product is followed at once by the unit that reads its result.

The weight gradient of a dense layer thus goes to its optimizer slice by slice, never stored as a whole. This is for the
host's caches only: the program that the device model estimates keeps the two compute sets. A product with a long k is
not fused: packing the operands that its units share once for all of them is worth more. Nor is a product fused that
matrix registers compute faster.
"""

from __future__ import annotations

from engine.host.passes.split_products import is_split
from engine.host.unit_chain import chained
from engine.machine_code.costs import costs
from engine.program.program import ComputeSet, Program, Span
from engine.program.rewriter import ProgramRewriter
from engine.program.work.contraction import Contraction
from engine.program.work.fused_loop import FusedLoop

SHARE = 1 / 16
"""Fuse arrays larger than this share of a worker's cache, by slices up to it. Smaller arrays stay cached anyway."""
LONGEST_K = 256
"""Longest k for which a product's units share nothing worth packing once."""
FEW_ROWS = 16
"""The least rows of a unit. With fewer, reading a right operand from beyond the cache takes longer than storing."""


def fuse_producers(program: Program) -> Program:
    """Fuses products into the updates of variables, or of a loop's state, that read them."""
    rewriter = ProgramRewriter(program)
    for at, consumer in enumerate(program.compute_sets):
        if not isinstance(consumer.work, FusedLoop) or not any(s.buffer.is_state for s in consumer.writes):
            continue
        for span in consumer.reads:
            producer_at = _producer(rewriter, span, at)
            if producer_at is not None:
                own = {span.buffer: _block_bytes(span)}
                rewriter.replace(at, chained([rewriter.sets[producer_at], consumer], own))
                rewriter.remove([producer_at])
                break
    return rewriter.result()


def _producer(rewriter: ProgramRewriter, span: Span, at: int) -> int | None:
    """Finds the compute set that writes `span`'s buffer, if only `at` reads it and can follow unit by unit."""
    buffer, uses = span.buffer, rewriter.uses
    if (
        buffer.kind != "arena"
        or buffer.permanent
        or buffer.shape.bytes < SHARE * costs().cache_bytes
        or not _block_bytes(span)
    ):
        return None
    writers = uses.writers(buffer)
    if len(writers) != 1 or writers[0] >= at or uses.users(buffer) != [writers[0], at] or uses.escapes(buffer):
        return None
    producer = rewriter.sets[writers[0]]
    if not _fit(producer, rewriter.sets[at], span) or is_split(rewriter.program, producer.work):
        return None
    return writers[0] if _may_wait(rewriter.program, writers[0], at) else None


def _fit(producer: ComputeSet, consumer: ComputeSet, span: Span) -> bool:
    """Whether the consumer can follow the producer unit by unit, with no memory shared between units."""
    if producer.units != consumer.units or producer.units < 2 or producer.one_worker or consumer.one_worker:
        return False
    if producer.overwrites or consumer.overwrites or not _shares_nothing(producer):
        return False
    if [written.buffer for written in producer.writes] != [span.buffer] or producer.writes[
        0
    ].partition != span.partition:
        return False
    # Each of the two accesses the buffer, which is replaced by scratch, through one address.
    reached = [[a.offset for a in each.work.addresses if a.buffer is span.buffer] for each in (producer, consumer)]
    if reached != [[0], [0]] or [s.buffer for s in consumer.reads].count(span.buffer) != 1:
        return False
    own = {(s.buffer, s.partition) for s in consumer.writes}
    touched = {s.buffer for s in consumer.writes}
    return all(
        s.partition is not None and (s.buffer, s.partition) in own for s in producer.reads if s.buffer in touched
    )


def _shares_nothing(producer: ComputeSet) -> bool:
    """Whether a compute set is a product whose units are as fast one by one."""
    work = producer.work
    if not isinstance(work, Contraction) or not work.is_float32 or len(work.k_a) > LONGEST_K:
        return False
    return work.grid.rows >= FEW_ROWS or 4 * len(work.k_a) * work.columns <= costs().cache_bytes


def _block_bytes(span: Span) -> int:
    """The bytes of each unit's slice, if the slices are contiguous in order and small; else 0."""
    partition, shape = span.partition, span.buffer.shape
    if partition is None or partition.inner * partition.extent != shape.elements:
        return 0
    size = partition.inner * partition.grain * shape.dtype.itemsize
    return size if size <= SHARE * costs().cache_bytes else 0


def _may_wait(program: Program, before: int, at: int) -> bool:
    """Whether compute set `before` may be delayed until `at`."""
    if any(before < mark.position <= at for mark in program.marks):
        return False
    producer = program.compute_sets[before]
    reads, writes = {s.buffer for s in producer.reads}, {s.buffer for s in producer.writes}
    between = program.compute_sets[before + 1 : at]
    if any(s.buffer in reads or s.buffer in writes for each in between for s in each.writes):
        return False
    return not any(s.buffer in writes for each in between for s in each.reads)
