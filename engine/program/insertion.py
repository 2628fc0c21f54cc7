"""A program with more compute sets in it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import replace

from engine.program.program import ComputeSet, Program


def followed(program: Program, following: Mapping[int, ComputeSet]) -> Program:
    """The program with a compute set right after each of those whose numbers are given, before any mark there."""
    numbers = sorted(following)

    def moved(position: int) -> int:
        return position + bisect_left(numbers, position)

    sets = []
    for at, compute_set in enumerate(program.compute_sets):
        sets.append(compute_set)
        if at in following:
            sets.append(following[at])
    program.compute_sets = sets
    program.marks = [replace(m, position=moved(m.position)) for m in program.marks]
    program.regions = [replace(r, begin=moved(r.begin), end=moved(r.end)) for r in program.regions]
    return program
