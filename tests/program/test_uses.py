"""The index of buffer uses agrees with a walk over all compute sets, even while compute sets are replaced."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.program.program import Buffer, Program
from engine.program.rewriter import ProgramRewriter
from engine.program.uses import BufferUses
from tests.program.programs import PROGRAMS, program_of


def walked(program: Program) -> dict[Buffer, tuple[list[int], list[int]]]:
    """Readers and writers of each buffer, by their definition."""
    buffers = {s.buffer: None for c in program.compute_sets for s in (*c.reads, *c.writes)}
    sets = list(enumerate(program.compute_sets))
    return {
        b: (
            [at for at, c in sets if any(s.buffer is b for s in c.reads)],
            [at for at, c in sets if any(s.buffer is b for s in c.writes)],
        )
        for b in buffers
    }


@pytest.mark.parametrize("name", list(PROGRAMS)[:6])
def test_index_has_what_a_walk_finds(name: str) -> None:
    program = program_of(name)
    uses, expected = BufferUses(program), walked(program)
    assert list(uses.buffers) == list(expected)
    for buffer, (reads, writes) in expected.items():
        assert (list(uses.readers(buffer)), list(uses.writers(buffer))) == (reads, writes)
        assert uses.users(buffer) == sorted({*reads, *writes})
        tested = any(mark.predicate is buffer for mark in program.marks)
        assert uses.escapes(buffer) == (tested or buffer in program.outputs)


@pytest.mark.parametrize("name", list(PROGRAMS)[:6])
def test_index_follows_a_rewriter(name: str) -> None:
    """Removes every third compute set, and moves every fifth to other buffers; the given program stays as it is."""
    program = program_of(name)
    before = list(program.compute_sets)
    rewriter = ProgramRewriter(program)
    assert rewriter.uses.buffers
    twins = {buffer: replace(buffer) for buffer in rewriter.uses.buffers}
    for at, each in enumerate(before):
        if at % 3 == 2:
            rewriter.remove([at])
        elif at % 5 == 0:
            spans = [[replace(s, buffer=twins[s.buffer]) for s in spans] for spans in (each.reads, each.writes)]
            rewriter.replace(at, replace(each, reads=spans[0], writes=spans[1]))
    result = rewriter.result()
    assert program.compute_sets == before
    assert len(result.compute_sets) == len(before) - len(before) // 3
    kept = [at for at in range(len(before)) if at % 3 != 2]
    for buffer, (reads, writes) in walked(result).items():
        assert list(rewriter.uses.readers(buffer)) == [kept[at] for at in reads]
        assert list(rewriter.uses.writers(buffer)) == [kept[at] for at in writes]
