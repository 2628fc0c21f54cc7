"""Charts of memory by tile: a strip of all tiles, and a histogram."""

from __future__ import annotations

from collections import Counter
from typing import Any

from engine.report.charts.style import (
    CATEGORIES,
    CATEGORY_COLOURS,
    bytes_axis,
    colours,
    figure,
    limit_line,
)
from engine.report.numbers import count, nice_step

BINS = 40
STRIP = 184
"""Most columns of the strip; each shows the fullest tile of a run of consecutive tiles."""


def memory_by_tile(data: dict[str, Any]) -> dict[str, Any] | None:
    """Bytes of each tile at its own peak, by category, and the limit; None without tiles."""
    peaks = [each["peak_bytes"] for each in data["tiles"]]
    if not peaks:
        return None
    categories, limit = data["memory"]["categories"], data["memory"]["limit_bytes"]
    run = -(-len(peaks) // STRIP)
    fullest = [max(range(at, min(at + run, len(peaks))), key=peaks.__getitem__) for at in range(0, len(peaks), run)]
    present = [name for name in CATEGORIES if name in categories]
    rows = [
        {"tile": at * run, "bytes": categories[name][tile], "category": name, "order": order}
        for order, name in enumerate(present)
        for at, tile in [*enumerate(fullest), (len(peaks) / run, fullest[-1])]
    ]
    area = {
        "data": {"values": rows},
        "mark": {"type": "area", "interpolate": "step-after"},
        "encoding": {
            "x": {
                "field": "tile",
                "type": "quantitative",
                "axis": {"title": "tile", "format": ",d", "tickCount": 12},
                "scale": {"domain": [0, len(peaks)], "nice": False},
            },
            "y": {
                "field": "bytes",
                "type": "quantitative",
                "axis": bytes_axis("bytes at each tile's peak"),
                "scale": {"domain": [0, 1.1 * max(limit, *peaks)], "nice": False},
            },
            "color": {
                "field": "category",
                "type": "nominal",
                "scale": colours(CATEGORIES, CATEGORY_COLOURS, set(present)),
            },
            "order": {"field": "order"},
            "tooltip": [
                {"field": "category"},
                {"field": "tile", "type": "quantitative", "format": ",d", "title": "from tile"},
                {"field": "bytes", "type": "quantitative", "format": ",d"},
            ],
        },
    }
    return figure(300, layer=[area, *limit_line(limit, f"limit {count(limit)} bytes")])


def memory_histogram(data: dict[str, Any]) -> dict[str, Any] | None:
    """Histogram of tiles by bytes at their peak; None without tiles."""
    peaks = [each["peak_bytes"] for each in data["tiles"]]
    if not peaks:
        return None
    step = nice_step(max(1, max(peaks) - min(peaks)) / BINS)
    bins = Counter(peak // step for peak in peaks)
    rows = [{"from": at * step, "to": (at + 1) * step, "tiles": number} for at, number in sorted(bins.items())]
    encoding = {
        "x": {
            "field": "from",
            "bin": "binned",
            "type": "quantitative",
            "axis": {**bytes_axis("bytes at a tile's peak"), "tickCount": 6},
            "scale": {"zero": False, "nice": False, "padding": 4},
        },
        "x2": {"field": "to"},
        "y": {
            "field": "tiles",
            "type": "quantitative",
            "stack": None,
            "axis": {"title": "tiles", "format": ",d", "tickCount": 4},
        },
        "tooltip": [
            {"field": "from", "type": "quantitative", "format": ",d", "title": "from bytes"},
            {"field": "to", "type": "quantitative", "format": ",d", "title": "below bytes"},
            {"field": "tiles", "type": "quantitative", "format": ",d"},
        ],
    }
    mark = {"type": "bar", "color": "var(--accent)"}
    return figure(150, data={"values": rows}, mark=mark, encoding=encoding)
