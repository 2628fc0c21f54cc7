"""Units of solves and Fourier transforms, as many right-hand sides or lines as this processor's vectors have lanes."""

from __future__ import annotations

from dataclasses import replace

from engine.codelets.factors.triangular_solve import fitted_block
from engine.machine_code.processor import lanes
from engine.program.program import ComputeSet, Program
from engine.program.rewriter import with_each
from engine.program.work.factors import SolveWork
from engine.program.work.fourier import FourierWork, width_of


def fit_units(program: Program) -> Program:
    """Fits the units of each work whose kernel has a right-hand side, or a line, in each lane."""
    return with_each(program, _fitted)


def _fitted(each: ComputeSet) -> ComputeSet:
    work = each.work
    if isinstance(work, SolveWork):
        work = replace(work, block=fitted_block(work))
    elif isinstance(work, FourierWork):
        work = replace(work, width=width_of(work.plan, work.lines[1], lanes()))
    if work == each.work:
        return each
    units = work.unit_count or 1
    return replace(each, work=work, units=units, one_worker=each.one_worker or units == 1)
