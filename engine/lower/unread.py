"""Compute sets whose results nobody reads: counts and predicates that the workers know by themselves."""

from __future__ import annotations

from engine.codelets.dynamic_slice import dynamic_slice
from engine.program.program import Buffer, ComputeSet, Program
from engine.program.removal import without
from engine.program.work.fused_loop import FusedLoop
from engine.program.work.words import has_codelet


def without_unread(program: Program) -> Program:
    """Drops what leads to no output, variable, queue or decision; a buffer is read if anybody does at any time."""
    wanted: set[Buffer] = {*program.outputs, *(m.predicate for m in program.marks if m.predicate is not None)}
    writers: dict[Buffer, list[ComputeSet]] = {}
    pending: list[ComputeSet] = []
    for each in program.compute_sets:
        for span in each.writes:
            writers.setdefault(span.buffer, []).append(each)
        if not _only_computes(each) or any(s.buffer in wanted or s.buffer.kind != "arena" for s in each.writes):
            pending.append(each)
    kept: set[ComputeSet] = set()
    while pending:
        each = pending.pop()
        if each not in kept:
            kept.add(each)
            for span in each.reads:
                pending += writers.pop(span.buffer, [])
    return without(program, [at for at, each in enumerate(program.compute_sets) if each not in kept])


def _only_computes(compute_set: ComputeSet) -> bool:
    return isinstance(compute_set.work, FusedLoop) or has_codelet(compute_set.work, dynamic_slice)
