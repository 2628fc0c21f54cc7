"""The verifier of programs accepts results of lowering and of passes, and finds each broken rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from engine.errors import InternalError
from engine.host.passes.pass_list import HOST_PASSES
from engine.program.pass_list import PROGRAM_PASSES
from engine.program.program import Mark, Partition, Program, Region
from engine.program.run_passes import listening, run_passes
from engine.program.verifier import verify
from engine.program.work.base import Work
from engine.program.work.contraction import Contraction
from engine.program.work.fused_loop import FusedLoop
from engine.program.work.offsets import Offsets
from tests.program.programs import program_of

Break = Callable[[Program], Program]


def with_work(program: Program, kind: type, change: Callable[[Any], Work]) -> Program:
    """The program with a change in the first work of a kind."""
    at, found = next((k, s) for k, s in enumerate(program.compute_sets) if type(s.work) is kind)
    sets = list(program.compute_sets)
    sets[at] = replace(found, work=change(found.work))
    return replace(program, compute_sets=sets)


def with_strides(loop: FusedLoop, stride: int) -> FusedLoop:
    """The loop, with that stride along each dimension of its first operand."""
    first, *rest = loop.operands
    return replace(loop, operands=(replace(first, strides=(stride,) * len(loop.extents)), *rest))


def with_first(program: Program, **changes: object) -> Program:
    """The program with its first compute set changed."""
    first, *rest = program.compute_sets
    return replace(program, compute_sets=[replace(first, **changes), *rest])


BREAKS: dict[str, tuple[Break, str]] = {
    "a read is not mentioned": (lambda p: with_first(p, reads=[]), "a span for each address"),
    "a write is not mentioned": (lambda p: with_first(p, writes=[]), "a span for each address"),
    "a span too many": (
        lambda p: with_first(p, reads=[*p.compute_sets[0].reads, *p.compute_sets[-1].writes]),
        "an address for each span",
    ),
    "units that have not all": (
        lambda p: with_first(
            p, writes=[replace(s, partition=Partition(1, 10**9, 1)) for s in p.compute_sets[0].writes]
        ),
        "to have all of",
    ),
    "a write that is said to be a read": (
        lambda p: with_first(p, reads=[*p.compute_sets[0].reads, *p.compute_sets[0].writes], writes=[]),
        "a write span",
    ),
    "an element before the array": (
        lambda p: with_work(p, FusedLoop, lambda loop: with_strides(loop, -64)),
        "work within .* Received: bytes -",
    ),
    "an element behind the array": (
        lambda p: with_work(p, Contraction, lambda c: replace(c, row_c=Offsets(c.row_c.table + (1 << 20)))),
        "work within .* bytes 1048576 to",
    ),
    "units that the work does not have": (lambda p: with_first(p, units=p.compute_sets[0].units + 1), "units"),
    "a jump to nowhere": (lambda p: replace(p, marks=[Mark(0, "jump", 7)]), "one label 7"),
    "a branch without a predicate": (
        lambda p: replace(p, marks=[Mark(0, "label", 7), Mark(1, "branch", 7)]),
        "a branch by a predicate",
    ),
    "marks out of order": (lambda p: replace(p, marks=[Mark(1, "label", 7), Mark(0, "label", 8)]), "marks in order"),
    "a region beyond the end": (lambda p: replace(p, regions=[Region(0, 10**6, True)]), "a region among"),
    "another order": (lambda p: replace(p, compute_sets=p.compute_sets[::-1]), "to be written before"),
    "no results": (lambda p: replace(p, compute_sets=[]), "a compute set that writes"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_broken_programs_are_refused(name: str) -> None:
    broken, message = BREAKS[name]
    program = program_of("training")
    if name == "no results":
        program = replace(program, outputs=[s.buffer for s in program.compute_sets[0].writes])
    verify(program)
    with pytest.raises(InternalError, match=message):
        verify(broken(program))


def test_a_listener_hears_of_each_pass() -> None:
    heard: list[str] = []
    with listening(lambda name, program: heard.append(name)):
        run_passes(program_of("training"), HOST_PASSES)
    assert heard == [*(p.__name__ for p in PROGRAM_PASSES), *(p.__name__ for p in HOST_PASSES)]
