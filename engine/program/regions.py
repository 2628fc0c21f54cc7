"""Regions around compute sets."""

from __future__ import annotations

from engine.program.program import Program, Region


def innermost_region(program: Program, at: int) -> tuple[int, int]:
    """Begin and end of the innermost region around compute set `at`; the whole program where there is none."""
    around = [r for r in program.regions if r.begin <= at < r.end]
    whole = Region(0, len(program.compute_sets), repeats=False)
    innermost = min(around, key=lambda r: r.end - r.begin, default=whole)
    return innermost.begin, innermost.end
