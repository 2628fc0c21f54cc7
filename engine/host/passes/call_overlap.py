"""Compute sets that run beside a call of the host, because they do not depend on it.

Between two marks, the order becomes: what the call depends on, the call, what does not depend on it, the mark at which
a failed call leaves the step, and the rest. So one worker calls, and the others claim the work in between.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from engine.program.program import Buffer, ComputeSet, Program, Span
from engine.program.work.custom_calls import HostCall

LEAST_WORK = 100_000
"""Elements and multiply-adds for which claiming parts is worth it: some ten microseconds."""


def overlap_calls(program: Program) -> Program:
    """Runs other compute sets beside calls of the host, where there are enough of them."""
    if program.call is None:
        return program
    sets, marks = list(program.compute_sets), list(program.marks)
    bounds = {bound for region in program.regions for bound in (region.begin, region.end)}
    for call in [each for each in sets if isinstance(each.work, HostCall)]:
        at = sets.index(call)
        own = next(k for k, mark in enumerate(marks) if mark.kind == "leave" and mark.position == at + 1)
        others = bounds | {mark.position for k, mark in enumerate(marks) if k != own}
        begin = max((other for other in others if other <= at), default=0)
        end = min((other for other in others if other > at), default=len(sets))
        before, beside, after = _parted(sets[begin:at], call, sets[at + 1 : end])
        if sum(each.work_estimate.total for each in beside) < LEAST_WORK:
            continue
        sets[begin:end] = [*before, call, *(replace(each, claimed=True) for each in beside), *after]
        marks[own] = replace(marks[own], position=end - len(after))
    return replace(program, compute_sets=sets, marks=marks)


class _Uses:
    """The buffers that some compute sets read and write."""

    def __init__(self, compute_set: ComputeSet) -> None:
        self.read: set[Buffer] = set()
        self.written: set[Buffer] = set()
        self.add(compute_set)

    def add(self, compute_set: ComputeSet) -> None:
        self.read |= _buffers(compute_set.reads)
        self.written |= _buffers(compute_set.writes)

    def order(self, compute_set: ComputeSet) -> bool:
        """Whether a compute set depends on the others, or they on it."""
        written = _buffers(compute_set.writes)
        return not (self.written.isdisjoint(_buffers(compute_set.reads) | written) and self.read.isdisjoint(written))


def _buffers(spans: Iterable[Span]) -> set[Buffer]:
    return {span.buffer for span in spans}


def _parted(
    earlier: list[ComputeSet], call: ComputeSet, later: list[ComputeSet]
) -> tuple[list[ComputeSet], list[ComputeSet], list[ComputeSet]]:
    """Compute sets that must run before a call, those that may run beside it and those after it, in program order."""
    (before, early), (after, late) = _bound_to(call, earlier[::-1]), _bound_to(call, later)
    return before[::-1], [*early[::-1], *late], after


def _bound_to(call: ComputeSet, others: list[ComputeSet]) -> tuple[list[ComputeSet], list[ComputeSet]]:
    """Other compute sets that keep their order with a call, the nearest first, and those that may run beside it.

    Sets beside the call write only arrays of the step's arena, as the step may yet be left.
    """
    bound, kept, beside = _Uses(call), [], []
    for each in others:
        if bound.order(each) or not _writes_arena_alone(each):
            bound.add(each)
            kept.append(each)
        else:
            beside.append(each)
    return kept, beside


def _writes_arena_alone(compute_set: ComputeSet) -> bool:
    return all(span.buffer.kind == "arena" for span in compute_set.writes)
