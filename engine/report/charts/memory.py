"""Charts of memory by tile: a strip of all tiles, and a histogram."""

from __future__ import annotations

from collections import Counter
from typing import Any

from engine.report.charts import style
from engine.report.numbers import count, nice_step

BINS, COLUMNS = 40, 64
STRIP = 184
"""Most columns of the strip. Each shows the fullest tile of a run of consecutive tiles."""


def memory_by_tile(data: dict[str, Any]) -> dict[str, Any] | None:
    """The bytes of each tile at its own peak, by category, and the limit; None without tiles."""
    peaks = [each["peak_bytes"] for each in data["tiles"]]
    if not peaks:
        return None
    categories, limit = data["memory"]["categories"], data["memory"]["limit_bytes"]
    run = -(-len(peaks) // STRIP)
    fullest = [max(range(at, min(at + run, len(peaks))), key=peaks.__getitem__) for at in range(0, len(peaks), run)]
    present = [name for name in style.CATEGORIES if name in categories]
    rows = [
        {"tile": at * run, "bytes": categories[name][tile], "category": name, "order": order}
        for order, name in enumerate(present)
        for at, tile in [*enumerate(fullest), (len(peaks) / run, fullest[-1])]
    ]
    most = max(peaks)
    area = {
        "data": {"values": rows},
        "params": [style.switching("category"), style.zooming()],
        "transform": style.ONLY,
        "mark": {"type": "area", "interpolate": "step-after", "clip": True},
        "encoding": {
            "x": style.quantity("tile", style.whole_axis("tile"), len(peaks)),
            "y": style.quantity("bytes", style.bytes_axis("bytes at each tile's peak"), 1.1 * style.reach(most, limit)),
            "color": style.coloured("category", rows),
            "order": {"field": "order"},
            "tooltip": [{"field": "category"}, style.number("tile", "from tile"), style.number("bytes")],
        },
    }
    return style.figure(300, layer=[area, *style.limit_line(limit, f"limit {count(limit)} bytes", most)])


def memory_map(data: dict[str, Any]) -> dict[str, Any] | None:
    """A heat map of all tiles by number, row by row; tiles above the limit have another colour."""
    peaks, limit = [each["peak_bytes"] for each in data["tiles"]], data["memory"]["limit_bytes"]
    if not peaks:
        return None
    columns = min(COLUMNS, len(peaks))
    rows = [
        {"tile": tile, "bytes": peak, "column": tile % columns, "row": tile // columns, "over": peak > limit}
        for tile, peak in enumerate(peaks)
    ]
    colours = {"condition": {"test": "datum.over", "value": "var(--bad)"}, "value": "var(--accent)"}
    scale = {"domain": [min(0.95 * min(peaks), max(peaks) - 1), max(peaks)], "range": [0.15, 1]}
    encoding = {
        "x": {"field": "column", "type": "ordinal", "axis": None},
        "y": {"field": "row", "type": "ordinal", "axis": None},
        "fill": colours,
        "fillOpacity": {"field": "bytes", "type": "quantitative", "scale": scale, "legend": None},
        "tooltip": [style.number("tile"), style.number("bytes", "bytes at its peak")],
    }
    mark = {"type": "rect", "stroke": "var(--paper)", "strokeWidth": 1}
    return style.figure(11 * (rows[-1]["row"] + 1), data={"values": rows}, mark=mark, encoding=encoding)


def memory_histogram(data: dict[str, Any]) -> dict[str, Any] | None:
    """Histogram of tiles by bytes at their peak; None without tiles."""
    peaks = [each["peak_bytes"] for each in data["tiles"]]
    if not peaks:
        return None
    step = nice_step(max(1, max(peaks) - min(peaks)) / BINS)
    bins = Counter(peak // step for peak in peaks)
    rows = [{"from": at * step, "to": (at + 1) * step, "tiles": number} for at, number in sorted(bins.items())]
    axis = {**style.bytes_axis("bytes at a tile's peak"), "tickCount": 6}
    encoding = {
        "x": style.quantity("from", axis, bin="binned", scale={"zero": False, "nice": False, "padding": 4}),
        "x2": {"field": "to"},
        "y": style.quantity("tiles", {"title": "tiles", "format": ",d", "tickCount": 4}, stack=None),
        "tooltip": [style.number("from", "from bytes"), style.number("to", "below bytes"), style.number("tiles")],
    }
    mark = {"type": "bar", "color": "var(--accent)"}
    return style.figure(150, data={"values": rows}, mark=mark, encoding=encoding)
