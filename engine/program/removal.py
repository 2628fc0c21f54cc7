"""A program with some of its compute sets gone."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace

from engine.program.program import Program


def without(program: Program, removed: list[int]) -> Program:
    """The program without some compute sets; marks and regions keep their places among the others."""

    def moved(position: int) -> int:
        return position - bisect_left(removed, position)

    gone = set(removed)
    program.compute_sets = [s for at, s in enumerate(program.compute_sets) if at not in gone]
    program.marks = [replace(m, position=moved(m.position)) for m in program.marks]
    program.regions = [replace(r, begin=moved(r.begin), end=moved(r.end)) for r in program.regions]
    return program
