"""The report's charts as Vega-Lite specifications, one for each name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.report.charts.liveness import live_bytes, live_tensors
from engine.report.charts.memory import memory_by_tile, memory_histogram, memory_map
from engine.report.charts.parts import comparison, costliest, efficiency, exchanges, host_and_chip
from engine.report.charts.pipeline import pipeline_bytes, pipeline_gantt
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
"""Functions from a report's data to a specification, by name; they return None if there is nothing to show."""


def charts(data: dict[str, Any]) -> dict[str, Specification]:
    """All charts for which a report has data, by name."""
    found = {name: chart(data) for name, chart in CHARTS.items()}
    return {name: chart for name, chart in found.items() if chart is not None}
