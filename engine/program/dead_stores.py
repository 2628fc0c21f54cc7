"""Elimination of compute sets whose results have no readers: counts and predicates that workers compute themselves."""

from __future__ import annotations

from engine.program.program import Buffer, ComputeSet, Program
from engine.program.rewriter import ProgramRewriter
from engine.program.uses import BufferUses
from engine.program.work.fused_loop import FusedLoop
from engine.program.work.indexing import SliceWork


def eliminate_dead_stores(program: Program) -> Program:
    """Drops compute sets that lead to no output, variable, queue or decision, in any order of reads and writes."""
    rewriter = ProgramRewriter(program)
    sets, uses = rewriter.sets, rewriter.uses
    pending = [at for at, each in enumerate(sets) if _is_needed(each, uses)]
    alive, read = set(pending), set[Buffer]()
    while pending:
        for span in sets[pending.pop()].reads:
            if span.buffer not in read:
                read.add(span.buffer)
                new = [at for at in uses.writers(span.buffer) if at not in alive]
                alive.update(new)
                pending += new
    rewriter.remove(at for at in range(len(sets)) if at not in alive)
    return rewriter.result()


def _is_needed(compute_set: ComputeSet, uses: BufferUses) -> bool:
    """Whether a compute set does more than compute, or a result has uses other than by compute sets."""
    if not isinstance(compute_set.work, FusedLoop | SliceWork):
        return True
    return any(uses.escapes(s.buffer) or s.buffer.kind != "arena" for s in compute_set.writes)
