"""The report as one self-contained HTML page: pictures, tables, and scripts that make them interactive."""

from __future__ import annotations

import base64
import gzip
import json
import re
import zlib
from typing import Any

from engine.errors import InvalidFile
from engine.files.container import refuse_constant
from engine.report import numbers
from engine.report.charts import CHARTS, charts
from engine.report.charts.style import CATEGORIES
from engine.report.charts.trace import shown_ipu
from engine.report.numbers import count, size
from engine.report.operations import supersteps, work_cycles
from engine.report.render import TEMPLATES, library, picture, prepare, runtime, style_sheet

OF_ONE_IPU = ("memory-by-tile", "memory-map", "memory-histogram", "live-bytes", "live-tensors", "phases")
"""Charts of one IPU of a pipeline."""
OF_WORK = ("costliest", "exchanges")
"""Charts of the work of all IPUs, or of one."""


def views(data: dict[str, Any]) -> list[dict[str, Any]]:
    """Charts, leads and [begin, end] of the rows in the table of operations, for each IPU of a pipeline.

    The range is None if the table lacks these rows, as for stages that run concurrently.
    """
    found, at = [], 0
    for each in data.get("by_ipu", ()):
        end = at + len(each["supersteps"])
        of_ipu = data | each | {"operations": data["operations"][at:end]}
        # The operations of a pipeline are those of its IPUs, one after the other.
        has_work = _is_work_of(data, at, each["supersteps"])
        drawn = {name: CHARTS[name](of_ipu) for name in (*OF_ONE_IPU, *(OF_WORK if has_work else ()))}
        shown = {name: chart for name, chart in drawn.items() if chart}
        rows = [at, end] if has_work else None
        found.append({"ipu": each["ipu"], "charts": shown, "leads": leads(of_ipu), "rows": rows})
        at = end
    return found


def _is_work_of(data: dict[str, Any], begin: int, steps: list[dict[str, Any]]) -> bool:
    """Whether the operations from `begin` on are these compute sets, over all micro-batches."""
    return [row["name"] for row in data["operations"][begin : begin + len(steps)]] == [row["name"] for row in steps]


def leads(data: dict[str, Any]) -> dict[str, str]:
    """The sentences above charts, and below the chart of liveness, by the name of a section or chart."""
    memory, target, live, steps = data["memory"], data["target"], data["liveness"], supersteps(data)
    ipu = "" if data["pipeline"] is None else f"IPU {shown_ipu(data)}{'' if 'ipu' in data else ', the fullest'}"
    whose = f"{ipu}: " if ipu else ""
    loops = any(row["runs"] > 1 for row in steps)
    largest = max(range(len(steps)), key=live["live_bytes"].__getitem__, default=None)
    return {
        "memory": (
            f"{whose}{count(target['tiles'])} tiles of {count(memory['limit_bytes'])} bytes. On average a tile holds "
            f"{size(memory['always_live_mean'])} always and {size(memory['peak_mean'])} at the peak; the fullest holds "
            f"{size(memory['peak_fullest'])}."
        ),
        "liveness": (
            f"{whose}{size(live['always_live_bytes'])} are always live: variables, constants, code and the state of "
            "vertices. All other arrays are live from the compute set that writes them to the last one that reads them."
        ),
        "live-bytes": (
            f"All tiles together. The dot marks the peak, at {'' if largest is None else steps[largest]['name']}. "
            "Point at a step to see below which tensors are live then."
        ),
        "trace": (
            f"{f'Above {ipu}, over the whole step, below each part of its stages once: ' if ipu else ''}"
            f"{count(len(steps))} compute sets. In each, tiles sync, exchange their operands, and compute; it takes as "
            f"long as the slowest tile.{' All iterations of a loop are drawn as one.' if loops else ''}"
        ),
    }


TABLE = re.compile(r"<table.*?</table>", re.DOTALL)
HEAD = re.compile(r"<thead>(.*?)</thead>", re.DOTALL)
TITLE = re.compile(r"<th\b[^>]*>(.*?)</th>", re.DOTALL)
TAG = re.compile(r"<[^>]*>")
ROW = re.compile(r"<tr\b.*?</tr>", re.DOTALL)
CELL = re.compile(r"<(t[dh])\b")
ROWS = 60
"""Rows of a long table in a page without scripts."""
MOST_RATIO = 100
"""Most bytes to which a byte of a packed report unpacks; reports of this project have about ten."""
SCRIPTS = ("helpers.js", "tile.js", "tree.js", "lanes.js", "report.js")
"""The page's scripts, which become the body of one function."""
MARK = '<script type="text/plain" id="packed">'


def page(data: dict[str, Any]) -> str:
    """The page of a report. Raises ConfigurationError if the packages that draw it are not installed."""
    library()
    starting = prepare()
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters |= {
        name: getattr(numbers, name) for name in ("count", "signed", "short", "size", "duration", "percent")
    }
    specifications = charts(data)
    scripts = [(TEMPLATES / name).read_text(encoding="utf-8") for name in SCRIPTS]
    starting.join()
    made = environment.get_template("report.html.j2").render(
        report=data,
        pictures={name: picture(each, name) for name, each in specifications.items()},
        packed=packed(data, specifications),
        style=style_sheet(),
        script="\n".join(['"use strict";', "(() => {", *scripts, "})();"]),
        rows=ROWS,
        shown_ipu=None if data["pipeline"] is None else shown_ipu(data),
        alive=_alive(data),
        basis=data["cycles"]["basis"],
        work=work_cycles(data),
        leads=leads(data),
        category_numbers={name: number for number, name in enumerate(CATEGORIES)},
    )
    before, mark, rest = made.partition(MARK)
    return labelled(before) + mark + rest


def _alive(data: dict[str, Any]) -> list[dict[str, Any]]:
    """The tensors live at the peak, the largest first."""
    peak = data["memory"]["peak_at"]
    return [t for t in data["liveness"]["tensors"] if t["always_live"] or t["first"] <= peak <= t["last"]]


def packed(data: dict[str, Any], specifications: dict[str, Any]) -> str:
    """The report, the charts and the library that draws them, as gzipped JSON in base64, which needs no escaping."""
    drawn = {name: each for name, each in specifications.items() if name != "lanes" or "work" not in data}
    content = {
        **{"report": data, "charts": drawn, "leads": leads(data), "views": views(data)},
        **{"categories": CATEGORIES, "library": runtime()},
    }
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False)
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode("ascii")


def unpacked(html: str, origin: str) -> dict[str, Any]:
    """The report in a page that `page` has written. Raises InvalidFile for other pages."""
    _, found, rest = html.partition(MARK)
    try:
        if not found:
            raise ValueError("no report in it")
        text = _unzipped(base64.b64decode(rest.partition("<")[0], validate=True))
        content = json.loads(text, parse_constant=refuse_constant)
        report = content["report"]
    except (ValueError, zlib.error, KeyError, TypeError, RecursionError) as error:
        raise InvalidFile(f"Expected a report of this project in {origin}. Received another page: {error}.") from error
    return dict(report)


def _unzipped(data: bytes) -> bytes:
    """The content of one gzip member. Raises ValueError if it is cut off, or unpacks to far more bytes."""
    unzip = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    most = MOST_RATIO * len(data)
    content = unzip.decompress(data, most)
    if unzip.unconsumed_tail:
        raise ValueError(f"it unpacks to more than {most} bytes")
    if not unzip.eof:
        raise ValueError("it is cut off")
    return content


def labelled(html: str) -> str:
    """The page with a `data-label` in each cell, the column's title, in tables with a head.

    On a phone rows are blocks without a table head.
    """
    return TABLE.sub(lambda found: _labelled(found[0]), html)


def _labelled(table: str) -> str:
    head = HEAD.search(table)
    if head is None:
        return table
    titles = [TAG.sub("", title).strip() for title in TITLE.findall(head[1])]

    def in_row(row: re.Match[str]) -> str:
        column = iter(titles)
        return CELL.sub(lambda cell: f'<{cell[1]} data-label="{next(column, "")}"', row[0])

    return table[: head.end()] + ROW.sub(in_row, table[head.end() :])
