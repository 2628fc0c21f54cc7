"""Units of solves and Fourier transforms, as many right-hand sides or lines as this processor's vectors have lanes."""

from __future__ import annotations

from dataclasses import replace

from engine.codelets.factors.triangular_solve import fitted_block
from engine.machine_code.processor import lanes
from engine.program.program import Program
from engine.program.rewriter import ProgramRewriter
from engine.program.work.factors import SolveWork
from engine.program.work.fourier import FourierWork, width_of


def fit_units(program: Program) -> Program:
    """Fits the units of each work whose kernel has a right-hand side, or a line, in each lane."""
    rewriter = ProgramRewriter(program)
    for at, each in enumerate(program.compute_sets):
        work = each.work
        if isinstance(work, SolveWork):
            work = replace(work, block=fitted_block(work))
        elif isinstance(work, FourierWork):
            work = replace(work, width=width_of(work.plan, work.lines[1], lanes()))
        if work != each.work:
            units = work.unit_count or 1
            rewriter.replace(at, replace(each, work=work, units=units, one_worker=each.one_worker or units == 1))
    return rewriter.result()
