"""Rows of the operations table: cost of each compute set, its work and its share of the peak."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from engine.profile.program_estimate import Estimate
from engine.profile.step_costs import ComputeSetCost
from engine.profile.vertices import kind_of
from engine.report.records import fields_of


def operation_rows(
    costs: Iterable[ComputeSetCost], estimate: Estimate, source: Callable[[str], str]
) -> list[dict[str, Any]]:
    """One row for each compute set, in the order of execution, with the cycles, flop and bytes of a whole step.

    `source` returns the line of the user's program for an op_name.
    """
    return [_row(number, cost, estimate, source(cost.op_name)) for number, cost in enumerate(costs)]


def whole_step(estimate: Estimate) -> tuple[ComputeSetCost, ...]:
    """The costs of a step's compute sets over all their executions; of a pipeline those of all IPUs."""
    return estimate.costs if estimate.pipeline is None else estimate.pipeline.costs


def supersteps(data: dict[str, Any]) -> list[dict[str, Any]]:
    """The compute sets that liveness and traces number: those of a step, or of a pipeline's fullest IPU."""
    return list(data["supersteps"] or data["operations"])


def work_cycles(data: dict[str, Any]) -> int:
    """The cycles of which operations are shares, at least 1: one IPU's step, or the work of all IPUs of a pipeline.

    A pipeline's IPUs work concurrently, so their cycles add up to more than those of a step.
    """
    whole = data["cycles"]["total"] if data["pipeline"] is None else sum(row["cycles"] for row in data["operations"])
    return max(1, int(whole))


def sums_by_name(rows: Iterable[dict[str, Any]], *columns: str) -> dict[str, Counter[str]]:
    """Sums of columns over the operations of each name, and their number as "rows"."""
    found: dict[str, Counter[str]] = {}
    for row in rows:
        found.setdefault(row["name"], Counter()).update({"rows": 1} | {each: row[each] for each in columns})
    return found


def amp_flops(estimate: Estimate) -> dict[str, int]:
    """Flop of a step on the matrix engines, by the operands' element type, "f32" or "f16"."""
    found: dict[str, int] = {}
    for cost in whole_step(estimate):
        if cost.operation.unit == "AMP":
            kind = kind_of(cost.operation.element_type)
            found[kind] = found.get(kind, 0) + cost.operation.flop * cost.runs
    return found


def _row(number: int, cost: ComputeSetCost, estimate: Estimate, source: str) -> dict[str, Any]:
    operation, target = cost.operation, estimate.target
    flop, share = operation.flop * cost.runs, None
    if operation.unit == "AMP" and cost.cycles:
        rate = target.amp_flops_per_cycle(kind_of(operation.element_type), estimate.assumptions.partials_type)
        share = round(flop / (target.tiles * rate * cost.cycles), 6)
    return {
        "number": number,
        "name": cost.label,
        "layer": operation.layer,
        "source": source,
        "unit": operation.unit,
        "dtype": operation.element_type,
        **fields_of(cost, "runs", "tiles", "compute", "exchange", "sync", "cycles"),
        "flop": flop,
        "bytes": operation.bytes * cost.runs,
        "peak_share": share,
        **fields_of(cost, "live_bytes", "method"),
    }
