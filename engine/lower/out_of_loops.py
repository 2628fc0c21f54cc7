"""Compute sets that do the same in every turn of a loop, moved before it."""

from __future__ import annotations

from dataclasses import replace

from engine.program.program import Buffer, ComputeSet, Mark, Program, Region
from engine.program.work.fused_loop import FusedLoop


def move_out_of_loops(program: Program) -> Program:
    """Of loops that are known to turn at least once, the inner ones first."""
    for number in range(len(program.regions)):
        region = program.regions[number]
        if region.repeats and region.turns:
            label = _label_of(program.marks, region)
            same = _same_in_every_turn(program, region) if label is not None else []
            if label is not None and same:
                _move(program, region, number, label, same)
    return program


def _label_of(marks: list[Mark], region: Region) -> int | None:
    """Where in the list of marks a loop that counts its turns begins."""
    ends = {mark.label for mark in marks if mark.kind == "repeat" and mark.position == region.end}
    begins = [k for k, m in enumerate(marks) if m.kind == "label" and m.label in ends and m.position == region.begin]
    return begins[0] if len(begins) == 1 else None


def _same_in_every_turn(program: Program, region: Region) -> list[int]:
    """Compute sets that run in each turn, read what the loop does not write, and alone write what they write."""
    inside = range(region.begin, region.end)
    writers: dict[Buffer, list[int]] = {}
    first_reads: dict[Buffer, int] = {}
    for at in inside:
        for span in program.compute_sets[at].writes:
            writers.setdefault(span.buffer, []).append(at)
        for span in program.compute_sets[at].reads:
            first_reads.setdefault(span.buffer, at)
    outside = {
        span.buffer
        for at, compute_set in enumerate(program.compute_sets)
        if at not in inside
        for span in compute_set.writes
    }
    skipped = [r for r in program.regions if region.begin <= r.begin and r.end <= region.end]
    moved: list[int] = []
    for at in inside:
        if any(r.begin <= at < r.end and (r.begin, r.end) != (region.begin, region.end) for r in skipped):
            continue
        compute_set = program.compute_sets[at]
        settled = all(set(writers.get(span.buffer, [])) <= set(moved) for span in compute_set.reads)
        if settled and _writes_once(compute_set, at, writers, first_reads) and not _may_differ(compute_set, outside):
            moved.append(at)
    return moved


def _writes_once(
    compute_set: ComputeSet, at: int, writers: dict[Buffer, list[int]], first_reads: dict[Buffer, int]
) -> bool:
    return all(set(writers[s.buffer]) == {at} and first_reads.get(s.buffer, at + 1) > at for s in compute_set.writes)


def _may_differ(compute_set: ComputeSet, outside: set[Buffer]) -> bool:
    """Whether each turn may do something else, or a result may not come sooner.

    Nests do what their spans say and nothing else; other codelets may count turns, or draw new numbers in each.
    """
    faces = any(span.buffer.kind != "arena" or span.buffer in outside for span in compute_set.writes)
    return faces or not isinstance(compute_set.work, FusedLoop)


def _move(program: Program, region: Region, number: int, label: int, moved: list[int]) -> None:
    begin, end = region.begin, region.end
    gone = set(moved)
    sets = program.compute_sets
    rest = [sets[at] for at in range(begin, end) if at not in gone]
    program.compute_sets = [*sets[:begin], *(sets[at] for at in moved), *rest, *sets[end:]]

    def place(position: int) -> int:
        """Where what stood before a compute set of the loop stands now."""
        return position + sum(at >= position for at in moved)

    program.marks = [replace(m, position=place(m.position)) if k >= label else m for k, m in enumerate(program.marks)]
    # Regions follow those inside them, and a loop has two: what is further behind lies around it.
    program.regions = [
        replace(r, begin=place(r.begin), end=place(r.end))
        if k <= number + 1 and begin <= r.begin and r.end <= end
        else r
        for k, r in enumerate(program.regions)
    ]
