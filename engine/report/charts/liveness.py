"""Charts of liveness: live bytes over the compute sets of a program, and live ranges of tensors."""

from __future__ import annotations

from typing import Any

from engine.report.charts import style
from engine.report.operations import supersteps

TENSORS = 30
"""Number of tensors with a bar."""
LETTERS = 44
"""Letters of a name beside a bar. Vega would spend most of its time on shortening names itself."""


def live_bytes(data: dict[str, Any]) -> dict[str, Any] | None:
    """Bytes on the whole chip at each compute set: an always live band, and the other live bytes above it."""
    live, always = data["liveness"]["live_bytes"], data["liveness"]["always_live_bytes"]
    if not live:
        return None
    kinds, steps = style.LIVE_KINDS, supersteps(data)
    run = -(-len(live) // style.MOST_POINTS)
    title = style.whole_axis("compute set, in order of execution")
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
            "x": style.quantity("at", title, len(live)),
            "y": style.quantity("bytes", style.bytes_axis("bytes on the chip")),
            "color": style.coloured("kind", rows),
            "order": {"field": "order"},
        },
    }
    where = {
        "data": {"values": [row for row in rows if row["order"] == 1]},
        # Not "nearest", whose tooltips have no names: Vega-Lite looks them up in the wrong datum.
        "params": [{"name": "step", "select": {"type": "point", "on": "pointerover", "fields": ["step"]}}],
        "mark": {"type": "rect", "color": "var(--ink)"},
        "encoding": {
            "x": {"field": "at", "type": "quantitative"},
            "x2": {"field": "until"},
            "opacity": {"condition": {"param": "step", "value": 0.25, "empty": False}, "value": 0},
            "tooltip": [
                style.number("step", "compute set"),
                {"field": "name", "title": "operation"},
                style.number("bytes", "not always live"),
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
    return style.figure(260, layer=[area, where, point])


def live_tensors(data: dict[str, Any]) -> dict[str, Any] | None:
    """Bars from first to last compute set, of the TENSORS tensors with the largest bytes times lifetime."""
    # Exchange buffers live for one compute set only: their bars would be invisible.
    found = [t for t in data["liveness"]["tensors"] if not t["always_live"] and t["category"] != "exchange buffers"]
    chosen = sorted(found, key=lambda t: -t["bytes"] * (t["last"] - t["first"] + 1))[:TENSORS]
    if not chosen:
        return None
    chosen.sort(key=lambda t: (t["first"], t["last"]))
    keys, axis = style.keyed([tensor["name"] for tensor in chosen], LETTERS, 10.5)
    rows = [
        {"key": key, "tensor": tensor["name"], "until": tensor["last"] + 1, "step": tensor["first"]}
        | {name: tensor[name] for name in ("first", "bytes", "shape", "category")}
        for key, tensor in zip(keys, chosen, strict=True)
    ]
    title = style.whole_axis("compute set")
    encoding = {
        "y": {"field": "key", "type": "nominal", "axis": axis},
        "x": style.quantity("first", title, max(1, len(data["liveness"]["live_bytes"]))),
        "x2": {"field": "until"},
        "color": style.coloured("category", rows),
        "tooltip": [
            *({"field": "tensor"}, {"field": "shape"}, style.number("bytes")),
            *(style.number("first", "from compute set"), style.number("until", "until")),
        ],
    }
    mark = {"type": "bar", "height": {"band": 0.66}, "minBandSize": 2, "cornerRadius": 1}
    params = [style.switching("category")]
    return style.figure(
        17 * len(rows), data={"values": rows}, params=params, transform=style.ONLY, mark=mark, encoding=encoding
    )
