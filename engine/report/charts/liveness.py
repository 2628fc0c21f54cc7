"""Charts of liveness: live bytes over the compute sets of a program, and live ranges of tensors."""

from __future__ import annotations

from typing import Any

from engine.report.charts.style import (
    CATEGORIES,
    CATEGORY_COLOURS,
    MOST_POINTS,
    bytes_axis,
    colours,
    figure,
)
from engine.report.charts.supersteps import supersteps
from engine.report.numbers import cut

TENSORS = 30
"""Number of tensors with a bar."""
LETTERS = 36
"""Letters of a name beside a bar. Vega could shorten names itself, but spends most of its time on that."""


def live_bytes(data: dict[str, Any]) -> dict[str, Any] | None:
    """Bytes on the whole chip at each compute set: an always-live band, and above it those not always live."""
    live, always = data["liveness"]["live_bytes"], data["liveness"]["always_live_bytes"]
    if not live:
        return None
    kinds, steps = ("always live", "not always live"), supersteps(data)
    run = -(-len(live) // MOST_POINTS)
    rows = []
    for at in range(0, len(live), run):
        step = max(range(at, min(at + run, len(live))), key=live.__getitem__)
        name = steps[step]["name"]
        column = {"at": at, "until": min(at + run, len(live)), "step": step, "name": name}
        rows.append({**column, "bytes": always, "kind": kinds[0], "order": 0})
        rows.append({**column, "bytes": live[step], "kind": kinds[1], "order": 1})
    peak = max(range(len(live)), key=live.__getitem__)
    area = {
        "data": {"values": [*rows, *({**row, "at": len(live)} for row in rows[-2:])]},
        "mark": {"type": "area", "interpolate": "step-after"},
        "encoding": {
            "x": {
                "field": "at",
                "type": "quantitative",
                "axis": {"title": "compute set, in order of execution", "format": ",d", "tickCount": 12},
                "scale": {"domain": [0, len(live)], "nice": False},
            },
            "y": {"field": "bytes", "type": "quantitative", "axis": bytes_axis("bytes on the chip")},
            "color": {
                "field": "kind",
                "type": "nominal",
                "scale": {"domain": list(kinds), "range": ["var(--always)", "var(--live)"]},
            },
            "order": {"field": "order"},
        },
    }
    where = {
        "data": {"values": [row for row in rows if row["order"] == 1]},
        # Columns instead of "nearest", whose tooltips have no names: Vega-Lite looks them up in the wrong datum.
        "params": [{"name": "step", "select": {"type": "point", "on": "pointerover", "fields": ["step"]}}],
        "mark": {"type": "rect", "color": "var(--ink)"},
        "encoding": {
            "x": {"field": "at", "type": "quantitative"},
            "x2": {"field": "until"},
            "opacity": {"condition": {"param": "step", "value": 0.25, "empty": False}, "value": 0},
            "tooltip": [
                {"field": "step", "type": "quantitative", "format": ",d", "title": "compute set"},
                {"field": "name", "title": "operation"},
                {"field": "bytes", "type": "quantitative", "format": ",d", "title": "not always live"},
            ],
        },
    }
    at = peak // run * run
    marked = [{"at": (at + min(at + run, len(live))) / 2, "bytes": live[peak] + always}]
    point = {
        "data": {"values": marked},
        "mark": {"type": "point", "filled": True, "size": 50, "color": "var(--ink)", "opacity": 1},
        "encoding": {"x": {"field": "at", "type": "quantitative"}, "y": {"field": "bytes", "type": "quantitative"}},
    }
    return figure(260, layer=[area, where, point])


def live_tensors(data: dict[str, Any]) -> dict[str, Any] | None:
    """A bar from first to last compute set for the TENSORS tensors with the largest bytes times lifetime."""
    # Exchange buffers live for one compute set only: their bars would be invisible.
    found = [t for t in data["liveness"]["tensors"] if not t["always_live"] and t["category"] != "exchange buffers"]
    chosen = sorted(found, key=lambda t: -t["bytes"] * (t["last"] - t["first"] + 1))[:TENSORS]
    if not chosen:
        return None
    chosen.sort(key=lambda t: (t["first"], t["last"]))
    rows = [
        {
            "key": f"{number:02d}",
            "tensor": tensor["name"],
            "first": tensor["first"],
            "until": tensor["last"] + 1,
            "bytes": tensor["bytes"],
            "shape": tensor["shape"],
            "category": tensor["category"],
        }
        for number, tensor in enumerate(chosen)
    ]
    names = {row["key"]: row["tensor"] for row in rows}
    label = f"{{{','.join(f'{key!r}:{_quoted(cut(name, LETTERS))}' for key, name in names.items())}}}[datum.label]"
    encoding = {
        "y": {
            "field": "key",
            "type": "nominal",
            "axis": {"title": None, "labelExpr": label, "labelLimit": 0, "labelFontSize": 10.5},
        },
        "x": {
            "field": "first",
            "type": "quantitative",
            "axis": {"title": "compute set", "format": ",d", "tickCount": 12},
            "scale": {"domain": [0, max(1, len(data["liveness"]["live_bytes"]))], "nice": False},
        },
        "x2": {"field": "until"},
        "color": {
            "field": "category",
            "type": "nominal",
            "scale": colours(CATEGORIES, CATEGORY_COLOURS, {row["category"] for row in rows}),
        },
        "tooltip": [
            {"field": "tensor"},
            {"field": "shape"},
            {"field": "bytes", "type": "quantitative", "format": ",d"},
            {"field": "first", "type": "quantitative", "format": ",d", "title": "from compute set"},
            {"field": "until", "type": "quantitative", "format": ",d", "title": "until"},
        ],
    }
    mark = {"type": "bar", "height": {"band": 0.66}, "minBandSize": 2, "cornerRadius": 1}
    return figure(17 * len(rows), data={"values": rows}, mark=mark, encoding=encoding)


def _quoted(text: str) -> str:
    """The text as a string literal of Vega's expressions, which have JavaScript's syntax."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", " ") + "'"
