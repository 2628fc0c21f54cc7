"""Charts of supersteps over time: the phases of the chip, and of its busiest and idlest tiles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from engine.report.charts import style
from engine.report.operations import supersteps

BINS = 160
SEGMENTS = 700
"""Most segments of a lane in the page; the Perfetto trace has all of them."""
LANES = ("busiest tile", "idlest tile")


def segments(data: dict[str, Any]) -> Iterator[tuple[int, int, str, int]]:
    """(begin, end, phase, operation) of each sync, exchange and compute, in cycles from the step's beginning."""
    at = 0
    for row in supersteps(data):
        for phase in ("sync", "exchange", "compute"):
            if row[phase]:
                yield at, at + row[phase], phase, row["number"]
                at += row[phase]


def phases_over_time(data: dict[str, Any]) -> dict[str, Any] | None:
    """The share of each phase in BINS equal parts of the step; None for a step without cycles."""
    spans = list(segments(data))
    if not spans:
        return None
    width = spans[-1][1] / BINS
    shares = [dict.fromkeys(("compute", "exchange", "sync"), 0.0) for _ in range(BINS)]
    for begin, end, phase, _ in spans:
        first, last = int(begin / width), min(BINS - 1, int(end / width))
        for number in range(first, last + 1):
            shares[number][phase] += max(0.0, min(end, (number + 1) * width) - max(begin, number * width))
    rows = [
        {"cycle": round(number * width), "phase": phase, "share": round(part / width, 3), "order": order}
        for number, parts in enumerate(shares)
        for order, (phase, part) in enumerate(parts.items())
    ]
    rows += [{**row, "cycle": spans[-1][1]} for row in rows[-3:]]
    axis = {"title": "share of the time", "format": ".0%", "tickCount": 4}
    encoding = {
        "x": style.quantity("cycle", style.short_axis("cycles since the beginning of the step"), spans[-1][1]),
        "y": style.quantity("share", axis, stack="zero", scale={"domain": [0, 1]}),
        "color": style.coloured("phase", style.phase_colours({"compute", "exchange", "sync"})),
        "order": {"field": "order"},
        "tooltip": [
            {"field": "phase"},
            {"field": "share", "type": "quantitative", "format": ".0%"},
            style.number("cycle", "from cycle"),
        ],
    }
    return style.figure(
        170, data={"values": rows}, mark={"type": "area", "interpolate": "step-after"}, encoding=encoding
    )


def lanes(data: dict[str, Any]) -> dict[str, Any] | None:
    """Segments of the busiest tile, which works in every compute set, and of the idlest, which only works if all do."""
    spans = list(segments(data))
    if not spans:
        return None
    operations, tiles = supersteps(data), data["target"]["tiles"]
    idlest = [
        (begin, end, "idle" if phase == "compute" and operations[number]["tiles"] < tiles else phase, number)
        for begin, end, phase, number in spans
    ]
    rows = [
        {"lane": lane, "begin": begin, "end": end, "phase": phase, "operation": operations[number]["name"]}
        for lane, course in zip(LANES, (spans, idlest), strict=True)
        for begin, end, phase, number in shortened(course, SEGMENTS)
    ]
    encoding = {
        "y": {"field": "lane", "type": "nominal", "axis": {"title": None, "labelFontSize": 12}, "sort": list(LANES)},
        "x": style.quantity("begin", style.short_axis("cycles since the beginning of the step"), spans[-1][1]),
        "x2": {"field": "end"},
        "color": style.coloured("phase", style.phase_colours({row["phase"] for row in rows})),
        "tooltip": [
            *({"field": "operation"}, {"field": "phase"}),
            *(style.number("begin", "from cycle"), style.number("end", "to cycle")),
        ],
    }
    moving = {
        "name": "window",
        "select": {"type": "interval", "encodings": ["x"], "zoom": "wheel![event.shiftKey]"},
        "bind": "scales",
    }
    mark = {"type": "bar", "height": {"band": 0.72}, "clip": True}
    return style.figure(130, data={"values": rows}, params=[moving], mark=mark, encoding=encoding)


def shortened(spans: list[tuple[int, int, str, int]], most: int) -> list[tuple[int, int, str, int]]:
    """At most `most` segments: consecutive short ones become one, of the phase with the most cycles."""
    if len(spans) <= most:
        return spans
    least = 2 * (spans[-1][1] - spans[0][0]) / most
    found: list[tuple[int, int, str, int]] = []
    waiting: list[tuple[int, int, str, int]] = []
    for segment in spans:
        if segment[1] - segment[0] >= least:
            found += [*_together(waiting), segment]
            waiting = []
            continue
        waiting.append(segment)
        if segment[1] - waiting[0][0] >= least:
            found += _together(waiting)
            waiting = []
    return [*found, *_together(waiting)]


def _together(spans: list[tuple[int, int, str, int]]) -> list[tuple[int, int, str, int]]:
    if not spans:
        return []
    lengths: dict[str, int] = {}
    for begin, end, phase, _ in spans:
        lengths[phase] = lengths.get(phase, 0) + end - begin
    longest = max(spans, key=lambda segment: segment[1] - segment[0])
    return [(spans[0][0], spans[-1][1], max(lengths, key=lengths.__getitem__), longest[3])]
