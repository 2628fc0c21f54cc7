"""The page's view of another IPU of a pipeline than the fullest: charts, leads, and a part of the operations."""

from __future__ import annotations

from typing import Any

from engine.report.charts import CHARTS
from engine.report.charts.trace import shown_ipu
from engine.report.numbers import count, size
from engine.report.operations import supersteps

OF_ONE_IPU = ("memory-by-tile", "memory-map", "memory-histogram", "live-bytes", "live-tensors", "phases")
"""Charts of one IPU of a pipeline."""
OF_WORK = ("costliest", "exchanges")
"""Charts of the work of all IPUs, or of one."""


def views(data: dict[str, Any]) -> list[dict[str, Any]]:
    """Charts, leads and [begin, end] of the rows in the table of operations, for each IPU of a pipeline.

    The range is None if the table lacks these rows, as for stages that run concurrently.
    """
    found, at = [], 0
    for each in data.get("by_ipu", ()):
        end = at + len(each["supersteps"])
        of_ipu = data | each | {"operations": data["operations"][at:end]}
        # The operations of a pipeline are those of its IPUs, one after the other.
        has_work = _is_work_of(data, at, each["supersteps"])
        drawn = {name: CHARTS[name](of_ipu) for name in (*OF_ONE_IPU, *(OF_WORK if has_work else ()))}
        shown = {name: chart for name, chart in drawn.items() if chart}
        rows = [at, end] if has_work else None
        found.append({"ipu": each["ipu"], "charts": shown, "leads": leads(of_ipu), "rows": rows})
        at = end
    return found


def _is_work_of(data: dict[str, Any], begin: int, steps: list[dict[str, Any]]) -> bool:
    """Whether the operations from `begin` on are these compute sets, over all micro-batches."""
    return [row["name"] for row in data["operations"][begin : begin + len(steps)]] == [row["name"] for row in steps]


def leads(data: dict[str, Any]) -> dict[str, str]:
    """The sentences above charts, and below the chart of liveness, by the name of a section or chart."""
    memory, target, live, steps = data["memory"], data["target"], data["liveness"], supersteps(data)
    ipu = "" if data["pipeline"] is None else f"IPU {shown_ipu(data)}{'' if 'ipu' in data else ', the fullest'}"
    whose = f"{ipu}: " if ipu else ""
    loops = any(row["runs"] > 1 for row in steps)
    largest = max(range(len(steps)), key=live["live_bytes"].__getitem__, default=None)
    return {
        "memory": (
            f"{whose}{count(target['tiles'])} tiles of {count(memory['limit_bytes'])} bytes. On average a tile holds "
            f"{size(memory['always_live_mean'])} always and {size(memory['peak_mean'])} at the peak; the fullest holds "
            f"{size(memory['peak_fullest'])}."
        ),
        "liveness": (
            f"{whose}{size(live['always_live_bytes'])} are always live: variables, constants, code and the state of "
            "vertices. All other arrays are live from the compute set that writes them to the last one that reads them."
        ),
        "live-bytes": (
            f"All tiles together. The dot marks the peak, at {'' if largest is None else steps[largest]['name']}. "
            "Point at a step to see below which tensors are live then."
        ),
        "trace": (
            f"{f'Above {ipu}, over the whole step, below each part of its stages once: ' if ipu else ''}"
            f"{count(len(steps))} compute sets. In each, tiles sync, exchange their operands, and compute; it takes as "
            f"long as the slowest tile.{' All iterations of a loop are drawn as one.' if loops else ''}"
        ),
    }
