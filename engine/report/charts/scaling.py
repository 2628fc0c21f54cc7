"""The chart of a program on many replicas: the efficiency of each."""

from __future__ import annotations

from typing import Any

from engine.report.charts.style import figure, number, quantity


def efficiency(data: dict[str, Any]) -> dict[str, Any] | None:
    """Throughput of a replica relative to a single one, over the number of replicas."""
    scaling = data["scaling"]
    if not scaling:
        return None
    rows = [
        {name: row[name] for name in ("replicas", "efficiency", "gradient_share")} | {"rate": row["samples_per_second"]}
        for row in scaling["rows"]
    ]
    axis = {"title": "replicas", "values": [row["replicas"] for row in rows], "format": ",d"}
    encoding = {
        "x": quantity("replicas", axis, scale={"type": "log", "base": 2, "nice": False}),
        "y": quantity("efficiency", {"title": "of one replica's throughput", "format": ".0%", "tickCount": 5}, 1.05),
        "tooltip": [
            number("replicas"),
            {"field": "efficiency", "type": "quantitative", "format": ".1%"},
            {"field": "gradient_share", "type": "quantitative", "format": ".1%", "title": "gradients"},
            {"field": "rate", "type": "quantitative", "format": ".3~s", "title": "samples/s"},
        ],
    }
    point = {"filled": True, "size": 60, "color": "var(--accent)"}
    mark = {"type": "line", "color": "var(--accent)", "strokeWidth": 2, "point": point}
    return figure(190, data={"values": rows}, mark=mark, encoding=encoding)
