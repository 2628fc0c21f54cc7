"""Short work between compute sets of one unit on one worker, too: that takes less than the barriers around it.

Sums of few partial results are the usual case: the product that they belong to is split, and what reads them is not.
The bits are the same. For the host only.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from engine.program.program import ComputeSet, Program, Span
from engine.program.rewriter import ProgramRewriter
from engine.program.work.contraction import Contraction
from engine.program.work.fused_loop import FusedLoop

MOST_POINTS = 1 << 14
"""Terms of sums that take one worker about as long as a barrier takes two. Chosen by hand."""


def sum_on_one_worker(program: Program) -> Program:
    """Gives work one unit that comes from such, or adds partial sums, and is next read by such."""
    if program.exceptions is not None:
        return program
    rewriter = ProgramRewriter(program)
    changed = False
    for at, each in enumerate(program.compute_sets):
        if _is_short(each) and _leads_to_one(rewriter, at) and _comes_from_one(rewriter, at):
            rewriter.replace(at, _alone(each))
            changed = True
    return rewriter.result() if changed else program


def _is_short(compute_set: ComputeSet) -> bool:
    work = compute_set.work
    if not isinstance(work, FusedLoop) or work.nest.splits_reduction or work.record is not None:
        return False
    fixed = compute_set.one_worker or compute_set.claimed or compute_set.overwrites
    return compute_set.units > 1 and not fixed and prod(work.extents) <= MOST_POINTS


def _leads_to_one(rewriter: ProgramRewriter, at: int) -> bool:
    """Whether the next reader of each result is one worker, without control flow before it."""
    for span in rewriter.sets[at].writes:
        if span.buffer.kind != "arena":
            return False
        reader = next((number for number in rewriter.uses.readers(span.buffer) if number > at), None)
        if reader is None or not _runs_alone(rewriter.sets[reader]):
            return False
        if any(at < mark.position <= reader for mark in rewriter.program.marks):
            return False
    return True


def _comes_from_one(rewriter: ProgramRewriter, at: int) -> bool:
    """Whether one worker has written all that it reads, or all workers the partial sums that it adds."""
    found = False
    for span in rewriter.sets[at].reads:
        writer = next((number for number in reversed(rewriter.uses.writers(span.buffer)) if number < at), None)
        if span.buffer.kind != "arena" or writer is None:
            continue
        work = rewriter.sets[writer].work
        if not _runs_alone(rewriter.sets[writer]) and not (isinstance(work, Contraction) and work.splits > 1):
            return False
        found = True
    return found


def _runs_alone(compute_set: ComputeSet) -> bool:
    return (compute_set.units == 1 or compute_set.one_worker) and not compute_set.claimed


def _alone(compute_set: ComputeSet) -> ComputeSet:
    work = compute_set.work
    assert isinstance(work, FusedLoop)
    whole = replace(work, grain=work.extents[work.nest.partition])
    spans = compute_set.reads, compute_set.writes
    reads, writes = ([_of_all_units(span, compute_set.units) for span in each] for each in spans)
    return replace(compute_set, work=whole, units=1, reads=reads, writes=writes)


def _of_all_units(span: Span, units: int) -> Span:
    part = span.partition
    return span if part is None else replace(span, partition=replace(part, grain=part.grain * units))
