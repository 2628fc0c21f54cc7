"""The report's charts as Vega-Lite specifications, one for each name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.report.charts.comparison import comparison
from engine.report.charts.liveness import live_bytes, live_tensors
from engine.report.charts.memory import memory_by_tile, memory_histogram, memory_map
from engine.report.charts.parts import costliest, exchanges, host_and_chip
from engine.report.charts.pipeline import pipeline_bytes, pipeline_gantt
from engine.report.charts.scaling import efficiency
from engine.report.charts.trace import lanes, phases_over_time

Specification = dict[str, Any]
Chart = Callable[[dict[str, Any]], Specification | None]

CHARTS: dict[str, Chart] = {
    "memory-by-tile": memory_by_tile,
    "memory-map": memory_map,
    "memory-histogram": memory_histogram,
    "live-bytes": live_bytes,
    "live-tensors": live_tensors,
    "phases": phases_over_time,
    "lanes": lanes,
    "pipeline": pipeline_gantt,
    "pipeline-bytes": pipeline_bytes,
    "costliest": costliest,
    "exchanges": exchanges,
    "host": host_and_chip,
    "scaling": efficiency,
    "comparison": comparison,
}
"""Functions from a report's data to a specification, by name; they return None where there is nothing to show."""


OF_ONE_IPU = ("memory-by-tile", "memory-map", "memory-histogram", "live-bytes", "live-tensors", "phases", "lanes")
"""Charts of one IPU of a pipeline."""
OF_WORK = ("costliest", "exchanges")
"""Charts of the work of all IPUs, or of one."""


def charts_by_ipu(data: dict[str, Any]) -> list[dict[str, Any]]:
    """For each IPU of a pipeline the charts that show one."""
    views, at = [], 0
    for each in data.get("by_ipu", ()):
        end = at + len(each["supersteps"])
        of_ipu = data | each | {"operations": data["operations"][at:end]}
        # The operations of a pipeline are those of its IPUs, one after the other.
        names = (*OF_ONE_IPU, *OF_WORK) if _is_work_of(data, at, each["supersteps"]) else OF_ONE_IPU
        drawn = {name: CHARTS[name](of_ipu) for name in names}
        views.append({"ipu": each["ipu"], "charts": {name: chart for name, chart in drawn.items() if chart}})
        at = end
    return views


def _is_work_of(data: dict[str, Any], begin: int, steps: list[dict[str, Any]]) -> bool:
    """Whether the operations from `begin` on are these compute sets, for all micro-batches."""
    return [row["name"] for row in data["operations"][begin : begin + len(steps)]] == [row["name"] for row in steps]


def charts(data: dict[str, Any]) -> dict[str, Specification]:
    """All charts for which a report has data, by name."""
    found = {name: chart(data) for name, chart in CHARTS.items()}
    return {name: chart for name, chart in found.items() if chart is not None}
