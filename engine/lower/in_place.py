"""New values written straight to where they belong: variables, and the state of loops."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace

import numpy as np

from engine.emit.nest import Nest
from engine.program.program import Buffer, ComputeSet, Program, Region, Relocation, Span


def write_in_place(program: Program) -> Program:
    """Drops each final copy of a new value where nothing reads the old value after the new one is begun."""
    sets = program.compute_sets
    removed: list[int] = []
    for at, update in enumerate(sets):
        if not update.name.endswith(".update"):
            continue
        source, target = update.reads[0].buffer, update.writes[0].buffer
        region = _region(program, at)
        if source not in program.outputs and _may_write(sets, region, at, source, target):
            removed.append(at)
            for compute_set in sets:
                if compute_set is not update:
                    _replace(compute_set, source, target)
    return _without(program, removed)


def _region(program: Program, at: int) -> Region:
    """The innermost region around a compute set; the whole program where there is none."""
    around = [r for r in program.regions if r.begin <= at < r.end and not r.repeats]
    return min(around, key=lambda r: r.end - r.begin, default=Region(0, len(program.compute_sets), repeats=False))


def _without(program: Program, removed: list[int]) -> Program:
    """The program without some compute sets; marks and regions keep their places among the others."""

    def moved(position: int) -> int:
        return position - bisect_left(removed, position)

    gone = set(removed)
    program.compute_sets = [s for at, s in enumerate(program.compute_sets) if at not in gone]
    program.marks = [replace(m, position=moved(m.position)) for m in program.marks]
    program.regions = [replace(r, begin=moved(r.begin), end=moved(r.end)) for r in program.regions]
    return program


def _may_write(sets: list[ComputeSet], region: Region, at: int, source: Buffer, target: Buffer) -> bool:
    """Whether `source` may lie where `target` does, as seen from the region in which it becomes its new value."""
    if source.kind != "arena" or source.permanent or source.shape.bytes != target.shape.bytes:
        return False
    inside = [(k, s) for k, s in enumerate(sets) if region.begin <= k < region.end and k != at]
    outside = [s for k, s in enumerate(sets) if not region.begin <= k < region.end]
    if any(span.buffer is source for s in outside for span in (*s.reads, *s.writes)):
        return False
    writers = [(k, s) for k, s in inside if any(w.buffer is source for w in s.writes)]
    if not writers or any(w.buffer is target for _, s in inside for w in s.writes):
        return False
    first, writer = writers[0]
    if any(r.buffer is target for k, s in inside if k > first for r in s.reads):
        return False
    if not any(r.buffer is target for r in writer.reads):
        return True
    return len(writers) == 1 and _reads_where_it_writes(writer, source, target)


def _reads_where_it_writes(writer: ComputeSet, source: Buffer, target: Buffer) -> bool:
    """A nest that reads the old value of exactly the element it writes."""
    nest = writer.codelet
    if not isinstance(nest, Nest) or nest.reductions:
        return False
    words = [r.word for r in writer.relocations if r.buffer is source]
    reads = [r.word for r in writer.relocations if r.buffer is target]
    offsets = {r.offset for r in writer.relocations if r.buffer in (source, target)}
    if len(words) != 1 or offsets != {0}:
        return False
    strides = _strides(writer, nest, words[0])
    return all(np.array_equal(_strides(writer, nest, word), strides) for word in reads)


def _strides(compute_set: ComputeSet, nest: Nest, word: int) -> np.ndarray:
    return compute_set.parameters[word + 1 : word + 1 + nest.rank]


def _replace(compute_set: ComputeSet, source: Buffer, target: Buffer) -> None:
    def swapped(buffer: Buffer) -> Buffer:
        return target if buffer is source else buffer

    compute_set.reads = [Span(swapped(s.buffer), s.partition) for s in compute_set.reads]
    compute_set.writes = [Span(swapped(s.buffer), s.partition) for s in compute_set.writes]
    compute_set.relocations = [Relocation(r.word, swapped(r.buffer), r.offset) for r in compute_set.relocations]
