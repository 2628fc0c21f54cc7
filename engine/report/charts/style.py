"""Shared style of the charts: colours as variables of the page, so that they follow its theme, and quiet axes."""

from __future__ import annotations

from typing import Any

WIDTH = 960
"""Pixels of a chart where the width of the page is unknown: without scripts, and on paper."""
FONT = "Inter, -apple-system, Segoe UI, Roboto, Helvetica Neue, Arial, sans-serif"
"""No system-ui: browsers measure text in another font for it than they draw it in."""
PHASES = ("compute", "exchange", "sync", "host", "idle")
PHASE_COLOURS = tuple(f"var(--{phase})" for phase in PHASES)
CATEGORIES = (
    *("code", "weights", "optimizer state", "activations"),
    *("exchange buffers", "vertex state", "stream buffers", "other"),
)
CATEGORY_COLOURS = tuple(f"var(--category-{number})" for number in range(len(CATEGORIES)))
BYTES = "replace(format(datum.value, '.3~s'), regexp('([kMG]?)$'), ' $1B')"
"""Label expression of axes of bytes."""
SHORT = "replace(format(datum.value, '.3~s'), regexp('([kMG])$'), ' $1')"
"""Label expression of axes of other large numbers."""
MOST_POINTS = 360
"""Most points of a curve; each is the highest of a run of consecutive ones."""

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
    """An axis of bytes."""
    return {"title": title, "labelExpr": BYTES, "tickCount": 5}


def short_axis(title: str) -> dict[str, Any]:
    """An axis of large numbers."""
    return {"title": title, "labelExpr": SHORT, "tickCount": 6}


def quantity(field: str, axis: dict[str, Any], most: float | None = None, **rest: Any) -> dict[str, Any]:
    """A channel of numbers, on an axis from 0 to exactly `most` unless that is None."""
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


def coloured(field: str, scale: dict[str, Any], **rest: Any) -> dict[str, Any]:
    """A channel of colours by name."""
    return {"field": field, "type": "nominal", "scale": scale, **rest}


def number(field: str, title: str = "") -> dict[str, Any]:
    """A whole number in a tooltip, under a title other than the field's name if there is one."""
    return {"field": field, "type": "quantitative", "format": ",d"} | ({"title": title} if title else {})


def phase_colours(present: set[str]) -> dict[str, Any]:
    """The scale of the phases that are present."""
    return colours(PHASES, PHASE_COLOURS, present)


def category_colours(present: set[str]) -> dict[str, Any]:
    """The scale of the categories of memory that are present."""
    return colours(CATEGORIES, CATEGORY_COLOURS, present)


LIVE_KINDS = ("always live", "not always live")
LIVE_COLOURS = {"domain": list(LIVE_KINDS), "range": ["var(--always)", "var(--live)"]}


def colours(names: tuple[str, ...], values: tuple[str, ...], present: set[str]) -> dict[str, Any]:
    """A scale with the names that are present, each always in its own colour."""
    shown = [(name, value) for name, value in zip(names, values, strict=True) if name in present]
    return {"domain": [name for name, _ in shown], "range": [value for _, value in shown]}


def limit_line(value: float, text: str, field: str = "limit") -> list[dict[str, Any]]:
    """Layers with a dashed line at a limit, and its label."""
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
