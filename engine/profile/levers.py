"""Changes that would make a program fit, alone and together, with the bytes saved on the fullest tile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from engine.profile.changes import IPUS, Change, ChangeEstimator, Lever, halved, offloading
from engine.profile.program_estimate import Estimate
from engine.program.program import Program

__all__ = ["IPUS", "Lever", "levers", "together"]
WORTH_SAYING = 0.005
"""Fraction of the fullest tile's peak that a lever must save to be listed."""


def levers(program: Program, found: Estimate, recomputing: Callable[[], Program] | None = None) -> list[Lever]:
    """The changes that would save memory. Where none suffices alone, the first is several changes that do together.

    A smaller batch is the largest that fits, at most half the present one: arrays with rows of the batch are scaled,
    and products replanned. A pipeline has the fewest IPUs that suffice, each with a run of layers of about equal bytes
    that recomputes its activations. Library options and offloading have cost reports of their own, and so has the
    program that `recomputing` compiles, with recomputation. Changes that save less than WORTH_SAYING are omitted.
    """
    estimator = ChangeEstimator(program, found, recomputing)
    alone = [lever for lever in estimator.alone() if lever.saves >= WORTH_SAYING * found.memory.peak_fullest]
    if any(lever.fits for lever in alone):
        return alone
    return [*together(estimator), *alone]


def together(estimator: ChangeEstimator) -> list[Lever]:
    """The fewest changes that suffice together, with the largest batch that fits; empty if no changes suffice."""
    for change in _steps(estimator):
        if estimator.fits(change):
            return [estimator.lever(_least(estimator, change), alone=False)]
    return []


def _steps(estimator: ChangeEstimator) -> Iterator[Change]:
    """Add one change at a time: smaller batches, float16, half the memory for plans, offloading, more IPUs."""
    change = Change(accumulates=estimator.accumulates)
    if estimator.batch > 1:
        change = replace(change, batch=1)
    change = replace(change, half_precision=True)
    yield change
    assumptions = halved(estimator.found.assumptions)
    yield replace(change, assumptions=assumptions)
    change = replace(change, assumptions=offloading(assumptions))
    yield change
    if change.accumulates:
        yield replace(change, accumulates=False)
    over_ipus = estimator.pipeline(replace(change, assumptions=None))
    if over_ipus is not None:
        yield over_ipus


def _least(estimator: ChangeEstimator, change: Change) -> Change:
    """Drop the changes that the others make unnecessary, then take the largest batch that fits with the rest."""
    in_singles = replace(change, half_precision=False)
    change = in_singles if estimator.fits(in_singles) else change
    as_configured = replace(change, assumptions=None)
    change = as_configured if estimator.fits(as_configured) else change
    without = replace(change, batch=0)
    if change.batch and estimator.fits(without):
        return without
    return estimator.smaller_batch(change) or change
