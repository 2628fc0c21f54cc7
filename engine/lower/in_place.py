"""Variables updated in place: the codelet that makes a variable's new value writes it where the old one was."""

from __future__ import annotations

import numpy as np

from engine.emit.nest import Nest
from engine.program.program import Buffer, ComputeSet, Program, Relocation, Span


def adopt_variables(program: Program) -> Program:
    """Drops each final copy of a new value into its variable where nothing reads the old value afterwards."""
    sets = program.compute_sets
    for update in [s for s in sets if s.name.endswith(".update") and s.writes[0].buffer.kind == "variable"]:
        source, target = update.reads[0].buffer, update.writes[0].buffer
        if _may_adopt(sets, update, source, target) and source not in program.outputs:
            sets.remove(update)
            for compute_set in sets:
                _replace(compute_set, source, target)
    return program


def _may_adopt(sets: list[ComputeSet], update: ComputeSet, source: Buffer, target: Buffer) -> bool:
    if source.kind != "arena" or source.permanent or source.shape.bytes != target.shape.bytes:
        return False
    writers = [s for s in sets if any(w.buffer is source for w in s.writes)]
    if not writers or any(w.buffer is target for s in sets if s is not update for w in s.writes):
        return False
    first = sets.index(writers[0])
    if any(r.buffer is target for s in sets[first + 1 :] if s is not update for r in s.reads):
        return False
    if not any(r.buffer is target for r in writers[0].reads):
        return True
    return len(writers) == 1 and _reads_where_it_writes(writers[0], source, target)


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
