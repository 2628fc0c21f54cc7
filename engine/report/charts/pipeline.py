"""Charts of a pipeline: the schedule of its IPUs, and the bytes of each."""

from __future__ import annotations

from typing import Any

from engine.report.charts import style
from engine.report.numbers import count

MOST, WIDEST = 1500, 8000
"""Most rows that the chart shows, and its most pixels in width."""


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
    length = max(pipeline["cycles"], *(row["end"] for row in rows))
    x = style.quantity("begin", style.short_axis("cycles since the beginning of the update"), length)
    y = style.named("ipu", 12)
    tip = [
        *({"field": "kind"}, {"field": "stage"}, {"field": "micro-batch"}),
        *(style.number("begin", "from cycle"), style.number("end", "to cycle")),
    ]
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
            "color": style.coloured("kind", rows),
            "tooltip": tip,
        },
    }
    numbered = [row for row in rows if row["micro-batch"] != ""]
    text = {"type": "text", "align": "left", "dx": 2, "color": "var(--paper)", "fontSize": 10, "clip": True}
    label = {"x": x, "y": y, "text": {"field": "micro-batch"}, "tooltip": tip}
    labels = {"data": {"values": numbered}, "mark": text, "encoding": label}
    # If the numbers need more width than the page has, the chart scrolls sideways.
    narrowest = min((row["end"] - row["begin"] for row in numbered), default=length)
    digits = len(str(max((row["micro-batch"] for row in numbered), default=0)))
    least = min(WIDEST, round((4 + 6 * digits) * length / max(1, narrowest)) + 80)
    meta = {"leastWidth": least}
    return style.figure(44 * len(pipeline["ipus"]) + 10, layer=[lanes, bars, labels], usermeta=meta)


def pipeline_bytes(data: dict[str, Any]) -> dict[str, Any] | None:
    """Bytes on the fullest tile of each IPU, always live and at the peak; None for programs other than pipelines."""
    pipeline = data["pipeline"]
    if not pipeline:
        return None
    limit = data["memory"]["limit_bytes"]
    rows = []
    for each in pipeline["ipus"]:
        sizes = (each["always_live_bytes"], each["peak_bytes"] - each["always_live_bytes"])
        for order, (kind, size) in enumerate(zip(style.LIVE_KINDS, sizes, strict=True)):
            rows.append({"ipu": f"IPU {each['ipu']}", "kind": kind, "bytes": size, "order": order})
    most = max(each["peak_bytes"] for each in pipeline["ipus"])
    bars = {
        "data": {"values": rows},
        "mark": {"type": "bar", "width": {"band": 0.6}},
        "encoding": {
            "x": style.named("ipu", 12, labelAngle=0),
            "y": style.quantity("bytes", style.bytes_axis("bytes on the fullest tile"), 1.1 * style.reach(most, limit)),
            "color": style.coloured("kind", rows),
            "order": {"field": "order"},
            "tooltip": [{"field": "ipu"}, {"field": "kind"}, style.number("bytes")],
        },
    }
    return style.figure(170, layer=[bars, *style.limit_line(limit, f"limit {count(limit)} bytes", most)])
