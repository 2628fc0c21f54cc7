"""New values written straight to where they belong: variables, the state of loops, arrays that are updated in part."""

from __future__ import annotations

from bisect import insort
from dataclasses import replace

from engine.program.program import Buffer, ComputeSet, Program, Region
from engine.program.removal import without
from engine.program.work.fused_loop import FusedLoop

FINAL = ".update"
"""What ends the name of a compute set that copies a new value over an old one."""
WHOLE = ".copy"
"""What ends the name of a compute set that copies an array of which a part is written next."""
INITIAL = ".initial"
"""What ends the name of a compute set that copies an initial value into a loop's state."""


def write_in_place(program: Program) -> Program:
    """Drops each copy of a new value where nothing reads the old value after the new one is begun."""
    uses = _Uses(program)
    removed: list[int] = []
    for at, compute_set in enumerate(program.compute_sets):
        if not _is_copy(compute_set):
            continue
        source, target = compute_set.reads[0].buffer, compute_set.writes[0].buffer
        if source is not target and _may_write(program, uses, at, source, target):
            insort(removed, at)
            uses.drop(at)
            for place in uses.merge(source, target):
                merged = program.compute_sets[place]
                _replace(merged, source, target)
                if _is_copy(merged) and merged.reads[0].buffer is merged.writes[0].buffer:
                    insort(removed, place)
                    uses.drop(place)
    return without(program, removed)


class _Uses:
    """The numbers of the compute sets that read or write each buffer; those of marks that test it count as reads."""

    def __init__(self, program: Program) -> None:
        self.sets = program.compute_sets
        self.reads: dict[Buffer, list[int]] = {}
        self.writes: dict[Buffer, list[int]] = {}
        self.tests: dict[Buffer, list[int]] = {}
        for at, compute_set in enumerate(self.sets):
            for places, buffers in self._of(compute_set):
                for buffer in buffers:
                    places.setdefault(buffer, []).append(at)
        for mark in program.marks:
            if mark.predicate is not None:
                self.tests.setdefault(mark.predicate, []).append(mark.position)

    def _of(self, compute_set: ComputeSet) -> list[tuple[dict[Buffer, list[int]], list[Buffer]]]:
        reads, writes = ([s.buffer for s in spans] for spans in (compute_set.reads, compute_set.writes))
        return [(self.reads, list(dict.fromkeys(reads))), (self.writes, list(dict.fromkeys(writes)))]

    def drop(self, at: int) -> None:
        """Forgets a compute set."""
        for places, buffers in self._of(self.sets[at]):
            for buffer in buffers:
                places[buffer].remove(at)

    def merge(self, source: Buffer, target: Buffer) -> list[int]:
        """What used `source` uses `target` now; returns the compute sets concerned."""
        concerned: set[int] = set()
        for places in (self.reads, self.writes):
            held = places.setdefault(target, [])
            for at in places.pop(source, []):
                concerned.add(at)
                if at not in held:
                    insort(held, at)
        return sorted(concerned)

    def reads_between(self, buffer: Buffer, begin: int, end: int) -> bool:
        """Whether compute sets begin <= k < end read a buffer, or a mark before one of them or before `end` does."""
        return _any(self.reads.get(buffer, []), begin, end) or _any(self.tests.get(buffer, []), begin, end + 1)

    def writes_between(self, buffer: Buffer, begin: int, end: int) -> bool:
        return _any(self.writes.get(buffer, []), begin, end)


def _any(places: list[int], begin: int, end: int) -> bool:
    return any(begin <= place < end for place in places)


def _region(regions: list[Region], at: int, end: int) -> tuple[int, int]:
    """Where the innermost region around a compute set begins and ends; the whole program where there is none."""
    around = [r for r in regions if r.begin <= at < r.end]
    innermost = min(around, key=lambda r: r.end - r.begin, default=Region(0, end, repeats=False))
    return innermost.begin, innermost.end


def _may_write(program: Program, uses: _Uses, at: int, source: Buffer, target: Buffer) -> bool:
    """Whether `source` may lie where `target` does, into which compute set `at` copies it."""
    if source.kind != "arena" or source.permanent or source.shape.bytes != target.shape.bytes:
        return False
    if source in uses.tests or source in program.outputs:
        return False
    begin, end = _region(program.regions, at, len(program.compute_sets))
    writers = uses.writes.get(source, [])
    places = sorted({*writers, *uses.reads[source]})
    if not writers or places[0] < begin or places[-1] >= end:
        return False
    first = writers[0]
    if target.kind == "variable" and any(r.long and first < r.end for r in program.regions):
        return False  # an interruption may leave the loop, and the step has then not begun
    if target.kind == "variable" and any(m.kind == "leave" and first < m.position for m in program.marks):
        return False  # so it is where the program waits for the host
    if first >= at:
        return False
    used = uses.reads_between(target, begin, at) or uses.writes_between(target, begin, at)
    if used and any(r.repeats and r.begin <= first < r.end <= at for r in program.regions):
        return False
    # The old value must not be missed, and the new one must stay.
    if _is_missed(program, uses, at, source, target) or uses.writes_between(target, begin, at):
        return False
    if places[-1] > at and uses.writes_between(target, at + 1, end):
        return False
    writer = program.compute_sets[first]
    return not any(r.buffer is target for r in writer.reads) or _reads_where_it_writes(writer, source, target)


def _is_missed(program: Program, uses: _Uses, at: int, source: Buffer, target: Buffer) -> bool:
    """Whether the old value of `target` is read, before compute set `at`, where the new one may have been begun.

    A branch that keeps the old value copies it; that copy will be one of the target onto itself.
    """
    first = uses.writes[source][0]
    if _any(uses.tests.get(target, []), first + 1, at + 1):
        return True
    sets = program.compute_sets
    kept = {w for w in uses.writes[source] if _is_copy(sets[w]) and sets[w].reads[0].buffer is target}
    makers = [w for w in uses.writes[source] if w not in kept]
    for place in uses.reads.get(target, []):
        if first < place < at:
            if any(w < place and not _exclude(program, w, place) for w in makers):
                return True
            if place in makers and not _reads_where_it_writes(sets[place], source, target):
                return True
    return False


def _exclude(program: Program, one: int, later: int) -> bool:
    """Whether two compute sets are in the two branches of a conditional: a jump leads from the one past the other."""
    labels = {mark.label: mark.position for mark in program.marks if mark.kind == "label"}
    jumps = {(m.position, labels[m.label]) for m in program.marks if m.kind == "jump" and not m.when}
    regions = [r for r in program.regions if not r.repeats]
    ends = {r.end for r in regions if r.begin <= one < r.end <= later}
    others = {(r.begin, r.end) for r in regions if r.begin <= later < r.end}
    return any(begin in ends and (begin, end) in jumps for begin, end in others)


def _reads_where_it_writes(writer: ComputeSet, source: Buffer, target: Buffer) -> bool:
    """A nest that reads the old value of exactly the element it writes, or a codelet that may write over it."""
    loop = writer.work
    if writer.overwrites is target:
        return sum(span.buffer is target for span in writer.reads) == 1
    if not isinstance(loop, FusedLoop) or loop.nest.reductions:
        return False
    written, read = loop.operands_at(source), loop.operands_at(target)
    if len(written) != 1 or any(each.address.offset for each in (*written, *read)):
        return False
    return all(each.strides == written[0].strides for each in read)


def _is_copy(compute_set: ComputeSet) -> bool:
    """A whole array copied, on which the name alone says what the copy is for."""
    return (
        compute_set.name.endswith((FINAL, WHOLE, INITIAL))
        and isinstance(compute_set.work, FusedLoop)
        and compute_set.work.copies
        and len(compute_set.reads) == len(compute_set.writes) == 1
    )


def _replace(compute_set: ComputeSet, source: Buffer, target: Buffer) -> None:
    def swapped(buffer: Buffer) -> Buffer:
        return target if buffer is source else buffer

    compute_set.reads = [replace(s, buffer=swapped(s.buffer)) for s in compute_set.reads]
    compute_set.writes = [replace(s, buffer=swapped(s.buffer)) for s in compute_set.writes]
    compute_set.work = compute_set.work.with_addresses(lambda a: replace(a, buffer=swapped(a.buffer)))
