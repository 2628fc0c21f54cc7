"""Error bounds of a prediction, from the device model's errors against published measurements.

The error of a part of a step is the largest error of the measurements for this kind of work. Errors of one kind do
not cancel each other, as they come from the same row of the same table, so parts add up in proportion to their share
of the step. The error of a total is at least the root mean square error over whole models. Work without a published
measurement counts with UNMEASURED.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import sqrt

from engine.profile.step_costs import ComputeSetCost, StepCosts
from engine.profile.validation import whole_models, worst_errors

PARTS = ("compute", "exchange", "sync", "host")
UNMEASURED = 0.5
"""Relative error assumed for vertices without a published figure, such as sorts and look-ups."""
PRODUCTS = ("matrix products", "matrix-vector products")
ELEMENT_WISE = ("compiled element-wise", "hand-made element-wise")
HALF_TYPES = ("vector widths",)
BLOCKS = ("linear algebra",)
OF_ONE_IPU = {"exchange": ("exchange",), "sync": ("sync",), "host": ("host",)}
OF_SEVERAL = {"exchange": ("programs on several IPUs", "scaling over IPUs"), "sync": ("sync between IPUs",)}


def prediction_error(estimate: StepCosts) -> dict[str, float]:
    """Relative errors (0.2 for 20 %) of "compute", "exchange", "sync", "host" and "total" of a step."""
    several = estimate.replicas > 1 or estimate.pipeline is not None
    found = {"compute": _compute_error(estimate)}
    for part, groups in OF_ONE_IPU.items():
        found[part] = _worst(groups + (OF_SEVERAL.get(part, ()) if several else ()))
    cycles = cycles_of_parts(estimate)
    weighted = sum(cycles[part] * found[part] for part in PARTS) / max(1, estimate.cycles_per_step)
    return {**found, "total": max(weighted, whole_model_error())}


def cycles_of_parts(estimate: StepCosts) -> dict[str, int]:
    """The cycles of "compute", "exchange", "sync" and "host", which add up to those of a step."""
    return {part: estimate.exposed_host if part == "host" else getattr(estimate, part) for part in PARTS}


def whole_model_error() -> float:
    """Root mean square of the relative errors against published throughputs of whole models."""
    return root_mean_square(whole_model_errors())


def whole_model_errors() -> list[float]:
    """The relative error against each published throughput of a whole model."""
    return [row["estimate"] / row["published"] - 1 for row in whole_models()]


def root_mean_square(errors: Sequence[float]) -> float:
    """Root mean square of at least one error."""
    return sqrt(sum(error * error for error in errors) / len(errors))


def error_basis(total: float, errors: Sequence[float]) -> str:
    """Words for the basis of a total's error: the root mean square over whole models, or a larger one from its parts.

    `errors` are those of whole models; the largest of them is named.
    """
    worst, mean, models = max(errors, key=abs), root_mean_square(errors), f"{len(errors)} published models"
    if total <= mean * (1 + 1e-9):
        return f"root mean square over {models}, worst {worst:+.0%}"
    return f"largest errors of its parts by their shares; {models}: root mean square {mean:.0%}, worst {worst:+.0%}"


def _compute_error(estimate: StepCosts) -> float:
    whole = sum(cost.compute for cost in estimate.costs)
    return sum(cost.compute * _error_of(cost) for cost in estimate.costs) / max(1, whole)


def _error_of(cost: ComputeSetCost) -> float:
    if cost.method == "blocks":
        return _worst(BLOCKS)
    if cost.method in ("slices", "bitonic sort"):
        return UNMEASURED
    if cost.operation.unit == "AMP":
        return _worst(PRODUCTS)
    return _worst(ELEMENT_WISE + (HALF_TYPES if cost.operation.element_type in ("f16", "bf16") else ()))


@cache
def _worst(groups: tuple[str, ...]) -> float:
    errors = worst_errors()
    return max(abs(errors[group]) for group in groups)
