"""The chart of a comparison: the parts of a step before and now."""

from __future__ import annotations

from typing import Any

from engine.report.charts.style import PHASES, coloured, figure, named, number, phase_colours, quantity, short_axis


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
        "y": named("when", 12),
        "x": quantity("cycles", {**short_axis("cycles of a step"), "grid": True}),
        "color": coloured("phase", phase_colours({row["phase"] for row in rows})),
        "order": {"field": "order"},
        "tooltip": [{"field": "phase"}, number("cycles")],
    }
    return figure(90, data={"values": rows}, mark={"type": "bar", "height": {"band": 0.62}}, encoding=encoding)
