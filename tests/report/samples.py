"""Reports for tests: of a dense layer's training step, and of one that no chip holds."""

from __future__ import annotations

from functools import cache

from engine.program.program import Program
from engine.report import Report, make_report
from engine.target import target
from tests.profile.programs import dense_step


@cache
def program() -> Program:
    return dense_step()


@cache
def report(name: str = "dense step", batch: int = 64) -> Report:
    """The report on the Mk2; a batch other than 64 has more or fewer cycles."""
    return make_report(program() if batch == 64 else dense_step(batch), target("ipu2"), name=name)


@cache
def too_large() -> Report:
    """A step whose weights alone are more than eight tiles can hold."""
    return make_report(dense_step(64, 2000, 2000), target("ipu2", tiles=8), name="too large")
