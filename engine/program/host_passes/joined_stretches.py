"""Work of one worker moved up to earlier work of one worker, past what it does not touch: fewer barriers.

The rows of several embedding tables are sorted by one worker each, each before the sums of that table by all workers:
two barriers a table. All sorted first, these are two. The bits are the same. For the host only.
"""

from __future__ import annotations

from dataclasses import replace

from engine.program.program import ComputeSet, Program, Span

FARTHEST = 16
"""Most compute sets to pass by, which keeps the search short. Chosen by hand."""


def join_stretches(program: Program) -> Program:
    """Moves compute sets of one worker that the next one, of all workers, waits for."""
    sets = list(program.compute_sets)
    fixed = {mark.position for mark in program.marks} | {p for r in program.regions for p in (r.begin, r.end)}
    for at in range(1, len(sets) - 1):
        if _is_pure(sets[at]) and not runs_alone(sets[at - 1]) and _awaits(sets[at + 1], sets[at]):
            earlier = _earlier(sets, at, fixed)
            if earlier is not None:
                sets.insert(earlier + 1, sets.pop(at))
    if all(a is b for a, b in zip(sets, program.compute_sets, strict=True)):
        return program
    return replace(program, compute_sets=sets)


def runs_alone(compute_set: ComputeSet) -> bool:
    """Whether one worker runs all of a compute set."""
    return (compute_set.units == 1 or compute_set.one_worker) and not compute_set.claimed and not compute_set.once


def _is_pure(compute_set: ComputeSet) -> bool:
    """Whether one worker computes intermediate arrays, without variables, queues or calls of the host."""
    kinds = {"arena", "constant", "feed"}
    return (
        runs_alone(compute_set) and bool(compute_set.reads) and all(s.buffer.kind in kinds for s in _spans(compute_set))
    )


def must_keep_order(one: ComputeSet, other: ComputeSet) -> bool:
    """Whether a compute set writes an array that the other touches."""
    written, changed = ({s.buffer for s in each.writes} for each in (one, other))
    return any(s.buffer in changed for s in _spans(one)) or any(s.buffer in written for s in other.reads)


def _awaits(following: ComputeSet, compute_set: ComputeSet) -> bool:
    """Whether workers that run the following one read what the compute set writes."""
    written = {span.buffer for span in compute_set.writes}
    return not runs_alone(following) and any(span.buffer in written for span in following.reads)


def _earlier(sets: list[ComputeSet], at: int, fixed: set[int]) -> int | None:
    """The last compute set of one worker before number `at`, if all between may come after this one."""
    for before in range(at - 1, max(at - 1 - FARTHEST, -1), -1):
        if before + 1 in fixed or sets[before].claimed or sets[before].once:
            return None
        if runs_alone(sets[before]):
            return before
        if must_keep_order(sets[before], sets[at]):
            return None
    return None


def _spans(compute_set: ComputeSet) -> list[Span]:
    return [*compute_set.reads, *compute_set.writes]
