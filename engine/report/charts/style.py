"""Shared style of the charts: colours as variables of the page, so that they follow its theme, and quiet axes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from engine.report.numbers import cut

WIDTH = 960
"""Pixels of a chart where the width of the page is unknown: without scripts, and on paper."""
FONT = "Inter, -apple-system, Segoe UI, Roboto, Helvetica Neue, Arial, sans-serif"
"""Fonts of the charts. For system-ui browsers measure text in one font and draw it in another."""
PHASES = ("compute", "exchange", "sync", "host", "idle")
CATEGORIES = (
    *("code", "weights", "optimizer state", "activations"),
    *("exchange buffers", "vertex state", "stream buffers", "other"),
)
KINDS = ("forward", "recompute", "backward", "update")
"""Kinds of a pipeline's stages."""
LIVE_KINDS = ("always live", "not always live")
COLOURS = {
    "compute, exchange, sync": "var(--compute)",
    **{name: f"var(--{name})" for name in (*PHASES, *KINDS)},
    **dict(zip(LIVE_KINDS, ("var(--always)", "var(--live)"), strict=True)),
    **{name: f"var(--category-{number})" for number, name in enumerate(CATEGORIES)},
}
"""The colour of each phase, kind of stage or of bytes, and category of memory, the same in all charts."""
BYTES = "replace(format(datum.value, '.3~s'), regexp('([kMG]?)$'), ' $1B')"
"""Label expression of axes of bytes."""
SHORT = "replace(format(datum.value, '.3~s'), regexp('([kMG])$'), ' $1')"
"""Label expression of axes of other large numbers."""
NEAR = 3
"""Multiple of the highest value above which an axis does not reach the limit."""
MOST_POINTS = 360
"""Most points of a curve. Each is the highest of a run of consecutive points."""

CONFIG: dict[str, Any] = {
    "background": "transparent",
    "font": FONT,
    "view": {"stroke": None},
    "axis": {
        "labelColor": "var(--muted)",
        "titleColor": "var(--muted)",
        "titleFontWeight": "normal",
        "titleFontSize": 12,
        "labelFontSize": 11,
        "gridColor": "var(--grid)",
        "domainColor": "var(--line)",
        "tickColor": "var(--line)",
        "titlePadding": 10,
        "labelPadding": 6,
    },
    "axisY": {"domain": False, "ticks": False},
    "axisX": {"grid": False, "labelOverlap": "greedy", "labelSeparation": 8},
    "padding": {"left": 2, "right": 14, "top": 4, "bottom": 2},
    "legend": {
        "orient": "top",
        "title": None,
        "labelColor": "var(--ink)",
        "labelFontSize": 12,
        "symbolType": "square",
        "symbolSize": 110,
        "symbolStrokeWidth": 0,
        "padding": 0,
        "offset": 12,
        "columnPadding": 18,
    },
    "area": {"line": False},
    "aria": False,
}


def figure(height: int | dict[str, int], **content: Any) -> dict[str, Any]:
    """A Vega-Lite specification as wide as the page, of `height` pixels."""
    return {
        "width": "container",
        "height": height,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "config": CONFIG,
        **content,
    }


def bytes_axis(title: str) -> dict[str, Any]:
    """An axis with binary units of bytes as labels."""
    return {"title": title, "labelExpr": BYTES, "tickCount": 5}


def short_axis(title: str) -> dict[str, Any]:
    """An axis with short labels for large numbers."""
    return {"title": title, "labelExpr": SHORT, "tickCount": 6}


def whole_axis(title: str) -> dict[str, Any]:
    """An axis of counts, without fractions."""
    return {"title": title, "format": ",d", "tickCount": 12, "tickMinStep": 1}


def zooming() -> dict[str, Any]:
    """A parameter by which dragging moves the horizontal axis, and the wheel with Shift zooms it."""
    select = {"type": "interval", "encodings": ["x"], "zoom": "wheel![event.shiftKey]"}
    return {"name": "window", "select": select, "bind": "scales"}


def switching(field: str) -> dict[str, Any]:
    """A parameter by which a click on the legend shows one value alone, and clicks with Shift several."""
    return {"name": "only", "select": {"type": "point", "fields": [field]}, "bind": "legend"}


ONLY = [{"filter": {"param": "only"}}]
"""The transformation that keeps the rows selected by `switching`, or all if none is selected."""


def keyed(names: list[str], letters: int, font_size: float) -> tuple[list[str], dict[str, Any]]:
    """Distinct keys for names that may be equal when cut, and a vertical axis that shows the names."""
    keys = [f"{number:03d}" for number in range(len(names))]
    labels = ",".join(f"{key!r}:{_quoted(cut(name, letters))}" for key, name in zip(keys, names, strict=True))
    expression = f"{{{labels}}}[datum.label]"
    return keys, {"title": None, "labelExpr": expression, "labelLimit": 0, "labelFontSize": font_size}


def _quoted(text: str) -> str:
    """The text as a string literal of Vega's expressions, which have JavaScript's syntax."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", " ") + "'"


def quantity(field: str, axis: dict[str, Any], most: float | None = None, **rest: Any) -> dict[str, Any]:
    """A channel of numbers, on an axis from 0 to exactly `most`, or to a round number for None."""
    scale = {} if most is None else {"scale": {"domain": [0, most], "nice": False}}
    return {"field": field, "type": "quantitative", "axis": axis, **scale, **rest}


def named(field: str, font_size: float, **axis: Any) -> dict[str, Any]:
    """A channel of names in the order of the data, without a title."""
    return {
        "field": field,
        "type": "nominal",
        "sort": None,
        "axis": {"title": None, "labelFontSize": font_size, **axis},
    }


def coloured(field: str, rows: Iterable[dict[str, Any]], **rest: Any) -> dict[str, Any]:
    """A channel of colours by the names in a field of the rows, in the order of COLOURS."""
    present = {row[field] for row in rows}
    shown = [name for name in COLOURS if name in present]
    scale = {"domain": shown, "range": [COLOURS[name] for name in shown]}
    return {"field": field, "type": "nominal", "scale": scale, **rest}


def number(field: str, title: str = "") -> dict[str, Any]:
    """A whole number in a tooltip, under `title` or else the field's name."""
    return {"field": field, "type": "quantitative", "format": ",d"} | ({"title": title} if title else {})


def reach(most: float, limit: float) -> float:
    """The highest value of an axis: the limit, or `most` if the limit would make all bars invisible."""
    return max(most, 1) if most < limit / NEAR else max(most, limit)


def limit_line(value: float, text: str, most: float) -> list[dict[str, Any]]:
    """Layers with a dashed line and a label at a limit; only the label if the limit is beyond the axis."""
    if reach(most, value) < value:
        beyond = {"type": "text", "align": "right", "dx": -4, "color": "var(--muted)", "fontSize": 11}
        place = {
            "x": {"value": "width"},
            "y": {"value": 8},
            "text": {"value": f"{text}, {value / max(most, 1):.0f} times as much"},
        }
        return [{"data": {"values": [{}]}, "mark": beyond, "encoding": place}]
    field = "limit"
    rows = [{field: value, "text": text}]
    return [
        {
            "data": {"values": rows},
            "mark": {"type": "rule", "color": "var(--bad)", "strokeDash": [5, 4], "strokeWidth": 1.5},
            "encoding": {"y": {"field": field, "type": "quantitative"}},
        },
        {
            "data": {"values": rows},
            "mark": {"type": "text", "align": "left", "dx": 6, "dy": -7, "color": "var(--bad)", "fontSize": 11, "x": 0},
            "encoding": {"y": {"field": field, "type": "quantitative"}, "text": {"field": "text"}},
        },
    ]
