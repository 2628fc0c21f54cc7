"""Charts of a pipeline: the schedule of its IPUs, and the bytes of each."""

from __future__ import annotations

from typing import Any

from engine.report.charts.style import bytes_axis, figure, limit_line, short_axis
from engine.report.numbers import count

KINDS = ("forward", "recompute", "backward", "update")
COLOURS = ("var(--forward)", "var(--recompute)", "var(--backward)", "var(--update)")
MOST = 1500


def pipeline_gantt(data: dict[str, Any]) -> dict[str, Any] | None:
    """Gantt chart: a lane for each IPU, with gaps where it waits; None for a program that is not a pipeline."""
    pipeline = data["pipeline"]
    if not pipeline or not pipeline["rows"]:
        return None
    rows = [
        {
            "ipu": f"IPU {row['ipu']}",
            "begin": row["begin"],
            "end": row["begin"] + row["cycles"],
            "kind": row["kind"],
            "stage": row["stage"],
            "micro-batch": "" if row["micro_batch"] is None else row["micro_batch"],
        }
        for row in pipeline["rows"][:MOST]
    ]
    present = [kind for kind in KINDS if any(row["kind"] == kind for row in rows)]
    length = max(pipeline["cycles"], *(row["end"] for row in rows))
    x = {
        "field": "begin",
        "type": "quantitative",
        "axis": short_axis("cycles since the beginning of the update"),
        "scale": {"domain": [0, length], "nice": False},
    }
    y = {"field": "ipu", "type": "nominal", "sort": None, "axis": {"title": None, "labelFontSize": 12}}
    lanes = {
        "data": {"values": [{"ipu": f"IPU {each['ipu']}", "begin": 0, "end": length} for each in pipeline["ipus"]]},
        "mark": {"type": "bar", "height": {"band": 0.8}, "color": "var(--idle)"},
        "encoding": {"x": x, "x2": {"field": "end"}, "y": y},
    }
    bars = {
        "data": {"values": rows},
        "mark": {"type": "bar", "height": {"band": 0.8}, "stroke": "var(--paper)", "strokeWidth": 1},
        "encoding": {
            "x": x,
            "x2": {"field": "end"},
            "y": y,
            "color": {
                "field": "kind",
                "type": "nominal",
                "scale": {"domain": present, "range": [COLOURS[KINDS.index(kind)] for kind in present]},
            },
            "tooltip": [
                {"field": "kind"},
                {"field": "stage"},
                {"field": "micro-batch"},
                {"field": "begin", "type": "quantitative", "format": ",d", "title": "from cycle"},
                {"field": "end", "type": "quantitative", "format": ",d", "title": "to cycle"},
            ],
        },
    }
    layers = [lanes, bars]
    if len(rows) <= 200:
        text = {"type": "text", "align": "left", "dx": 4, "color": "var(--paper)", "fontSize": 10, "clip": True}
        layers.append(
            {"name": "labels", "data": {"values": _wide(rows, length)}, "mark": text, "encoding": _label(x, y)}
        )
    return figure(44 * len(pipeline["ipus"]) + 10, layer=layers)


def pipeline_bytes(data: dict[str, Any]) -> dict[str, Any] | None:
    """Bytes on the fullest tile of each IPU, always live and at the peak; None for a program that is not a pipeline."""
    pipeline = data["pipeline"]
    if not pipeline:
        return None
    kinds, limit = ("always live", "not always live"), data["memory"]["limit_bytes"]
    rows = [
        {"ipu": f"IPU {each['ipu']}", "kind": kind, "bytes": size, "order": order}
        for each in pipeline["ipus"]
        for order, (kind, size) in enumerate(
            zip(kinds, (each["always_live_bytes"], each["peak_bytes"] - each["always_live_bytes"]), strict=True)
        )
    ]
    most = max(each["peak_bytes"] for each in pipeline["ipus"])
    bars = {
        "data": {"values": rows},
        "mark": {"type": "bar", "width": {"band": 0.6}},
        "encoding": {
            "x": {
                "field": "ipu",
                "type": "nominal",
                "sort": None,
                "axis": {"title": None, "labelAngle": 0, "labelFontSize": 12},
            },
            "y": {
                "field": "bytes",
                "type": "quantitative",
                "axis": bytes_axis("bytes on the fullest tile"),
                "scale": {"domain": [0, 1.1 * max(limit, most)], "nice": False},
            },
            "color": {
                "field": "kind",
                "type": "nominal",
                "scale": {"domain": list(kinds), "range": ["var(--always)", "var(--live)"]},
            },
            "order": {"field": "order"},
            "tooltip": [
                {"field": "ipu"},
                {"field": "kind"},
                {"field": "bytes", "format": ",d", "type": "quantitative"},
            ],
        },
    }
    return figure(170, layer=[bars, *limit_line(limit, f"limit {count(limit)} bytes")])


def _wide(rows: list[dict[str, Any]], length: int) -> list[dict[str, Any]]:
    """The rows whose bars are wide enough for a micro-batch number."""
    return [row for row in rows if (row["end"] - row["begin"]) * 45 > length and row["micro-batch"] != ""]


def _label(x: dict[str, Any], y: dict[str, Any]) -> dict[str, Any]:
    return {"x": x, "y": y, "text": {"field": "micro-batch"}}
