"""Charts of supersteps over time: the phases of the chip, and of its busiest and idlest tiles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from engine.report.charts import style
from engine.report.operations import supersteps
from engine.report.tile_map import tiles_at

BINS = 160
SEGMENTS, LEAST_SEGMENTS = 700, 60
"""Most segments of a lane in the page if there are two, and if there are many; the Perfetto trace has all segments."""
LANES = ("busiest tile", "idlest tile")
MOST_LANES = 32
"""Most tiles of a chip that has a lane for each."""
Span = tuple[int, int, str, str]
"""The begin and end in cycles, phase and operation of a segment."""


def segments(data: dict[str, Any]) -> Iterator[tuple[int, int, str, int]]:
    """Yield (begin, end, phase, operation) of each sync, exchange and compute, in cycles since the step began."""
    at = 0
    for row in supersteps(data):
        for phase in ("sync", "exchange", "compute"):
            if row[phase]:
                yield at, at + row[phase], phase, row["number"]
                at += row[phase]


def whole_step(data: dict[str, Any]) -> list[Span]:
    """List (begin, end, phase, operation) from the first transfer of a step to its last.

    The supersteps of a chip come between the transfers from and to the host. Sums of gradients over replicas come after
    the supersteps. The IPU of a pipeline runs the rows of its schedule, each with the phases of its part, and idles
    between them.
    """
    host, exchange, pipeline = data["host"], data["exchange"], data["pipeline"]
    exposed = data["cycles"]["host"]
    into = min(exposed, round(host["bytes_in"] / host["in_bytes_per_second"] * data["target"]["clock_hz"]))
    found = [(0, into, "host", "transfer from the host")]
    if pipeline is None:
        names = [row["name"] for row in supersteps(data)]
        found += [(into + begin, into + end, phase, names[number]) for begin, end, phase, number in segments(data)]
        for phase, cycles in (
            ("sync", exchange["between_ipus_sync_cycles"]),
            ("exchange", exchange["between_ipus_cycles"]),
        ):
            found.append((found[-1][1], found[-1][1] + cycles, phase, "sum of gradients over replicas"))
    else:
        found += [(into + begin, into + end, *rest) for begin, end, *rest in _rows_of_ipu(pipeline, shown_ipu(data))]
        if found[-1][1] < into + pipeline["cycles"]:
            found.append((found[-1][1], into + pipeline["cycles"], "idle", "other IPUs"))
    found.append((found[-1][1], found[-1][1] + exposed - into, "host", "transfer to the host"))
    return [each for each in found if each[1] > each[0]]


def shown_ipu(data: dict[str, Any]) -> int:
    """The IPU of a pipeline that the report shows: the chosen one, or else the fullest."""
    fullest = max(data["pipeline"]["ipus"], key=lambda each: each["peak_bytes"])
    return int(data.get("ipu", fullest["ipu"]))


def _rows_of_ipu(pipeline: dict[str, Any], ipu: int) -> Iterator[Span]:
    parts = {(part["kind"], part["stage"]): part for part in pipeline["parts"]}
    at = 0
    for row in sorted((row for row in pipeline["rows"] if row["ipu"] == ipu), key=lambda row: row["begin"]):
        part, name = parts[row["kind"], row["stage"]], f"{row['kind']} of stage {row['stage']}"
        if row["micro_batch"] is not None:
            name += f", micro-batch {row['micro_batch']}"
        if row["begin"] > at:
            yield at, row["begin"], "idle", "waits for other IPUs"
        at, end, before = row["begin"], row["begin"] + row["cycles"], 0
        # Transfers between IPUs and from streaming memory count as exchange, as in the sums of the step.
        lengths = {"sync": part["sync"], "exchange": part["cycles"] - part["sync"] - part["compute"]}
        for phase in ("sync", "exchange", "compute"):
            before += lengths.get(phase, part["compute"])
            until = row["begin"] + row["cycles"] * before // max(1, part["cycles"])
            if until > at:
                yield at, until, phase, name
            at = max(at, until)
        at = max(at, end)


def phases_over_time(data: dict[str, Any]) -> dict[str, Any] | None:
    """The share of each phase in BINS equal parts of the step; None for a step without cycles."""
    spans = whole_step(data)
    if not spans:
        return None
    width = spans[-1][1] / BINS
    present = [phase for phase in style.PHASES if any(span[2] == phase for span in spans)]
    shares = [dict.fromkeys(present, 0.0) for _ in range(BINS)]
    for begin, end, phase, _ in spans:
        first, last = int(begin / width), min(BINS - 1, int(end / width))
        for number in range(first, last + 1):
            shares[number][phase] += max(0.0, min(end, (number + 1) * width) - max(begin, number * width))
    rows = [
        {"cycle": round(number * width), "phase": phase, "share": round(part / width, 3), "order": order}
        for number, parts in enumerate(shares)
        for order, (phase, part) in enumerate(parts.items())
    ]
    rows += [{**row, "cycle": spans[-1][1]} for row in rows[-len(present) :]]
    axis = {"title": "share of the time", "format": ".0%", "tickCount": 4}
    encoding = {
        "x": style.quantity("cycle", style.short_axis("cycles since the beginning of the step"), spans[-1][1]),
        "y": style.quantity("share", axis, stack="zero", scale={"domain": [0, 1]}),
        "color": style.coloured("phase", rows),
        "order": {"field": "order"},
        "tooltip": [
            {"field": "phase"},
            {"field": "share", "type": "quantitative", "format": ".0%"},
            style.number("cycle", "from cycle"),
        ],
    }
    params = [style.switching("phase"), style.zooming()]
    mark = {"type": "area", "interpolate": "step-after", "clip": True}
    return style.figure(170, data={"values": rows}, params=params, transform=style.ONLY, mark=mark, encoding=encoding)


def has_all_tiles(data: dict[str, Any]) -> bool:
    """Whether `lanes` has a lane for each tile."""
    return data["pipeline"] is None and data["target"]["tiles"] <= MOST_LANES and "work" in data


def lanes(data: dict[str, Any]) -> dict[str, Any] | None:
    """Segments of all tiles of a small chip; of a large chip those of the busiest tile and of the idlest.

    The busiest tile works in every compute set, the idlest only in compute sets that use all tiles.
    """
    steps = supersteps(data)
    title = "cycles since the beginning of the step"
    if data["pipeline"] is None:
        spans = whole_step(data)
    else:
        spans = [(begin, end, phase, str(steps[number]["name"])) for begin, end, phase, number in segments(data)]
        title = "cycles of each part of the stages, run once"
    if not spans:
        return None
    courses = _of_all_tiles(data, spans) if has_all_tiles(data) else _extremes(data, spans)
    most = max(LEAST_SEGMENTS, 2 * SEGMENTS // len(courses))
    rows: list[dict[str, Any]] = [
        {"lane": lane, "begin": begin, "end": end, "phase": phase, "operation": operation}
        for lane, course in courses.items()
        for begin, end, phase, operation in shortened(course, most)
    ]
    encoding = {
        "y": {"field": "lane", "type": "nominal", "axis": {"title": None, "labelFontSize": 12}, "sort": list(courses)},
        "x": style.quantity("begin", style.short_axis(title), spans[-1][1]),
        "x2": {"field": "end"},
        "color": style.coloured("phase", rows),
        "tooltip": [
            *({"field": "operation"}, {"field": "phase"}),
            *(style.number("begin", "from cycle"), style.number("end", "to cycle")),
        ],
    }
    mark = {"type": "bar", "height": {"band": 0.72}, "clip": True}
    height = max(130, 18 * len(courses))
    return style.figure(height, data={"values": rows}, params=[style.zooming()], mark=mark, encoding=encoding)


def _extremes(data: dict[str, Any], spans: list[Span]) -> dict[str, list[Span]]:
    """The spans of the busiest tile and of the idlest."""
    few = {row["name"] for row in supersteps(data) if row["tiles"] < data["target"]["tiles"]}
    idlest = [
        (begin, end, "idle" if phase == "compute" and operation in few else phase, operation)
        for begin, end, phase, operation in spans
    ]
    return dict(zip(LANES, (spans, idlest), strict=True))


def _of_all_tiles(data: dict[str, Any], spans: list[Span]) -> dict[str, list[Span]]:
    """The spans of each tile. It waits during compute sets in which it has no vertex."""
    first = int(spans[0][2] == "host")  # the transfer from the host comes before the first compute set
    numbers = {at: number for at, (*_, number) in enumerate(segments(data), first)}
    tiles_of = [set(tiles_at(work["place"])) for work in data["work"]]

    def phase_of(tile: int, at: int) -> str:
        phase, number = spans[at][2], numbers.get(at)
        waits = number is not None and phase != "sync" and tile not in tiles_of[number]
        return "idle" if waits else phase

    return {
        f"tile {tile}": [(begin, end, phase_of(tile, at), name) for at, (begin, end, _, name) in enumerate(spans)]
        for tile in range(data["target"]["tiles"])
    }


def shortened(spans: list[Span], most: int) -> list[Span]:
    """Merge consecutive short segments into one with their most frequent phase, so that at most `most` remain."""
    if len(spans) <= most:
        return spans
    least = 2 * (spans[-1][1] - spans[0][0]) / most
    found: list[Span] = []
    waiting: list[Span] = []
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


def _together(spans: list[Span]) -> list[Span]:
    if not spans:
        return []
    lengths: dict[str, int] = {}
    for begin, end, phase, _ in spans:
        lengths[phase] = lengths.get(phase, 0) + end - begin
    longest = max(spans, key=lambda segment: segment[1] - segment[0])
    return [(spans[0][0], spans[-1][1], max(lengths, key=lengths.__getitem__), longest[3])]
