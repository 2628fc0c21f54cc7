"""Charts of parts of a step: the costliest operations, the longest exchanges, and the host next to the chip."""

from __future__ import annotations

from typing import Any

from engine.report.charts.style import (
    PHASES,
    coloured,
    figure,
    keyed,
    named,
    number,
    quantity,
    short_axis,
)
from engine.report.numbers import cut
from engine.report.operations import sums_by_name

MOST = 15
LETTERS = 48


def costliest(data: dict[str, Any]) -> dict[str, Any] | None:
    """The operations with the most cycles, summed by name, by phase; a pipeline's are those of all IPUs."""
    return _by_name(data, ("compute", "exchange", "sync"))


def exchanges(data: dict[str, Any]) -> dict[str, Any] | None:
    """The operations whose exchanges take the most cycles, summed by name."""
    return _by_name(data, ("exchange",))


def _by_name(data: dict[str, Any], phases: tuple[str, ...]) -> dict[str, Any] | None:
    sums = sums_by_name(data["operations"], *phases)
    cycles = {name: sum(each[phase] for phase in phases) for name, each in sums.items()}
    names = [name for name in sorted(cycles, key=lambda name: (-cycles[name], name))[:MOST] if cycles[name]]
    if not names:
        return None
    times = [f" ×{sums[name]['rows']}" if sums[name]["rows"] > 1 else "" for name in names]
    keys, axis = keyed([cut(name, LETTERS) + each for name, each in zip(names, times, strict=True)], 99, 11.5)
    rows = [
        {"key": key, "operation": name, "cycles": sums[name][phase], "phase": phase, "order": order}
        for key, name in zip(keys, names, strict=True)
        for order, phase in enumerate(phases)
    ]
    on = "" if data["pipeline"] is None else f" on IPU {data['ipu']}" if "ipu" in data else " on all IPUs"
    title = f"cycles of a step{on}"
    encoding = {
        "y": {"field": "key", "type": "nominal", "axis": axis},
        "x": quantity("cycles", {**short_axis(title), "grid": True}),
        "color": coloured("phase", rows, **({"legend": None} if len(phases) == 1 else {})),
        "order": {"field": "order"},
        "tooltip": [{"field": "operation"}, {"field": "phase"}, number("cycles")],
    }
    mark = {"type": "bar", "height": {"band": 0.7}}
    return figure(23 * len(names), data={"values": rows}, mark=mark, encoding=encoding)


def host_and_chip(data: dict[str, Any]) -> dict[str, Any] | None:
    """Cycles of the chip's work and of host transfers, as parallel bars."""
    host, cycles = data["host"], data["cycles"]
    into = host["bytes_in"] / host["in_bytes_per_second"] * data["target"]["clock_hz"]
    chip = cycles["total"] - cycles["host"]
    rows = [
        {"lane": "chip", "part": "compute, exchange, sync", "begin": 0, "end": chip},
        {"lane": "host to chip", "part": "host", "begin": 0, "end": round(into)},
        {"lane": "chip to host", "part": "host", "begin": 0, "end": max(0, host["cycles"] - round(into))},
    ]
    encoding = {
        "y": named("lane", 12),
        "x": quantity("begin", {**short_axis("cycles of a step"), "grid": True}),
        "x2": {"field": "end"},
        "color": coloured("part", rows, legend=None),
        "tooltip": [{"field": "lane"}, number("end", "cycles")],
    }
    return figure(110, data={"values": rows}, mark={"type": "bar", "height": {"band": 0.6}}, encoding=encoding)


def comparison(data: dict[str, Any]) -> dict[str, Any] | None:
    """Two stacked bars of cycles by part of a step; None for a report without a comparison."""
    if "comparison" not in data:
        return None
    rows = [
        {"when": when, "phase": line["name"], "cycles": line[key], "order": PHASES.index(line["name"])}
        for when, key in (("before", "before"), ("now", "now"))
        for line in data["comparison"]["parts"]
        if line["name"] in PHASES
    ]
    encoding = {
        "y": named("when", 12),
        "x": quantity("cycles", {**short_axis("cycles of a step"), "grid": True}),
        "color": coloured("phase", rows),
        "order": {"field": "order"},
        "tooltip": [{"field": "phase"}, number("cycles")],
    }
    return figure(90, data={"values": rows}, mark={"type": "bar", "height": {"band": 0.62}}, encoding=encoding)


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
