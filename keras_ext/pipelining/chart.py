"""The Gantt chart of a pipeline's schedule as SVG: a row for each IPU, a column for each slot."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from xml.sax.saxutils import escape

from engine.errors import ConfigurationError
from engine.partition.schedule import Kind, Row, Schedule
from engine.whole_files import write_whole

COLOURS: dict[Kind, tuple[str, str]] = {
    "forward": ("#4C9BE8", "#0B2A4A"),
    "recompute": ("#9AD0A6", "#123D1C"),
    "backward": ("#F2A24B", "#4A2A05"),
    "update": ("#B08BD9", "#2C1247"),
}
"""The colours of fill and text for each kind of row."""
BUBBLE = "#EDEFF2"
CELL, LINE, GAP = 30, 34, 6
LEFT, TOP, RIGHT, BOTTOM = 64, 62, 20, 74
NARROWEST, WIDEST_CHART = 6, 6000
TEXT_NEEDS = 20
STYLE = (
    "text{font-family:Helvetica,Arial,sans-serif;font-size:12px;fill:#22272E}"
    ".title{font-size:15px;font-weight:600}.cell{font-size:11px;text-anchor:middle}.name{text-anchor:end}"
    ".axis{font-size:10px;fill:#6B7480;text-anchor:middle}"
)


@dataclass(frozen=True, repr=False)
class PipelineChart:
    """A chart that has been written to `path`; notebooks show its `svg`."""

    path: Path
    svg: str

    def __repr__(self) -> str:
        return f"<Chart of a pipeline in {self.path}>"

    def _repr_svg_(self) -> str:
        return self.svg


def write_chart(schedule: Schedule, name: str, path: str | PathLike[str]) -> PipelineChart:
    """Writes the chart to a file; raises ConfigurationError for a path that does not end in .svg or .html."""
    target = Path(path)
    if target.suffix.lower() not in (".svg", ".html"):
        raise ConfigurationError(
            f"Expected a path that ends in .svg or .html. Received: {str(path)!r}. Nearest: "
            f"{str(target.with_suffix('.svg'))!r}."
        )
    drawn = chart = svg(schedule, name)
    if target.suffix.lower() == ".html":
        chart = f'<!DOCTYPE html>\n<meta charset="utf-8">\n<title>{escape(name)}</title>\n{chart}'
    write_whole(target, chart)
    return PipelineChart(target, drawn)


def svg(schedule: Schedule, name: str) -> str:
    """The chart of a schedule as SVG, for a model of that name; sizes in pixels."""
    cell = max(NARROWEST, min(CELL, WIDEST_CHART // schedule.slots))
    width = max(LEFT + cell * schedule.slots + RIGHT, 560)
    height = TOP + (LINE + GAP) * len(schedule.ipus) + BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
        f"<style>{STYLE}</style>",
        f'<rect width="{width}" height="{height}" fill="#FFFFFF"/>',
        f'<text class="title" x="16" y="26">{escape(name)}: {_title(schedule)}</text>',
        f'<text x="16" y="46">{_waiting(schedule)}</text>',
        *_lines(schedule, cell),
        *_axis(schedule, cell, height - BOTTOM + 14),
        *_legend(schedule, height - 24),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _title(schedule: Schedule) -> str:
    return (
        f"{schedule.kind} schedule, {schedule.stages} stages on {len(schedule.ipus)} IPUs, "
        f"{schedule.micro_batches} micro-batches"
    )


def _waiting(schedule: Schedule) -> str:
    shares = schedule.bubbles()
    return f"Bubbles with slots of equal length: {100 * sum(shares.values()) / len(shares):.0f}% of the time"


def _lines(schedule: Schedule, cell: int) -> Iterator[str]:
    positions = {ipu: number for number, ipu in enumerate(schedule.ipus)}
    shares_ipu = len({ipu for ipus in schedule.devices for ipu in ipus}) < schedule.stages
    for ipu, position in positions.items():
        y = TOP + position * (LINE + GAP)
        yield f'<text class="name" x="{LEFT - 10}" y="{y + LINE / 2 + 4}">IPU {ipu}</text>'
        yield f'<rect x="{LEFT}" y="{y}" width="{cell * schedule.slots}" height="{LINE}" fill="{BUBBLE}"/>'
    for row in schedule.rows:
        fill, ink = COLOURS[row.kind]
        x, y = LEFT + row.slot * cell, TOP + positions[row.ipu] * (LINE + GAP)
        yield (
            f'<rect x="{x + 0.5}" y="{y + 0.5}" width="{cell - 1}" height="{LINE - 1}" rx="2" fill="{fill}">'
            f"<title>{_described(row)}</title></rect>"
        )
        if cell >= TEXT_NEEDS:
            label = _label(row, shares_ipu)
            yield f'<text class="cell" x="{x + cell / 2}" y="{y + LINE / 2 + 4}" style="fill:{ink}">{label}</text>'


def _label(row: Row, with_stage: bool) -> str:
    if row.micro_batch is None:
        return "U"
    return f"{row.stage}.{row.micro_batch}" if with_stage else str(row.micro_batch)


def _described(row: Row) -> str:
    of = "" if row.micro_batch is None else f" of micro-batch {row.micro_batch}"
    return f"slot {row.slot}, IPU {row.ipu}: {row.kind} of stage {row.stage}{of}"


def _axis(schedule: Schedule, cell: int, y: int) -> Iterator[str]:
    every = next(step for step in (1, 5, 10, 50, 100, 500, 1000, 10**9) if step * cell >= TEXT_NEEDS)
    for slot in range(0, schedule.slots, every):
        yield f'<text class="axis" x="{LEFT + slot * cell + cell / 2}" y="{y}">{slot}</text>'


def _legend(schedule: Schedule, y: int) -> Iterator[str]:
    shown = [kind for kind in COLOURS if any(row.kind == kind for row in schedule.rows)]
    x = LEFT
    for kind, fill in [*((kind, COLOURS[kind][0]) for kind in shown), ("bubble", BUBBLE)]:
        yield f'<rect x="{x}" y="{y - 11}" width="14" height="14" rx="2" fill="{fill}"/>'
        yield f'<text x="{x + 20}" y="{y}">{kind}</text>'
        x += 104
