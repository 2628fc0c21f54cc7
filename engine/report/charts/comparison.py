"""The chart of a comparison: the parts of a step before and now."""

from __future__ import annotations

from typing import Any

from engine.report.charts.style import PHASE_COLOURS, PHASES, colours, figure, short_axis


def comparison(data: dict[str, Any]) -> dict[str, Any] | None:
    """Two stacked bars of cycles by part of a step; None for a report without a comparison."""
    if "comparison" not in data:
        return None
    rows = [
        {"when": when, "phase": line["name"], "cycles": line[key], "order": PHASES.index(line["name"])}
        for when, key in (("before", "before"), ("now", "now"))
        for line in data["comparison"]["parts"]
        if line["name"] in PHASES
    ]
    encoding = {
        "y": {"field": "when", "type": "nominal", "sort": None, "axis": {"title": None, "labelFontSize": 12}},
        "x": {"field": "cycles", "type": "quantitative", "axis": {**short_axis("cycles of a step"), "grid": True}},
        "color": {
            "field": "phase",
            "type": "nominal",
            "scale": colours(PHASES, PHASE_COLOURS, {row["phase"] for row in rows}),
        },
        "order": {"field": "order"},
        "tooltip": [{"field": "phase"}, {"field": "cycles", "type": "quantitative", "format": ",d"}],
    }
    return figure(90, data={"values": rows}, mark={"type": "bar", "height": {"band": 0.62}}, encoding=encoding)
