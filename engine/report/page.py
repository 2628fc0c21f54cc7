"""The report as one self-contained HTML page: pictures, tables, and scripts that make them interactive."""

from __future__ import annotations

import base64
import gzip
import json
import re
import zlib
from typing import Any

from engine.errors import InvalidFile
from engine.report import numbers
from engine.report.charts import charts
from engine.report.charts.style import CATEGORIES
from engine.report.charts.trace import shown_ipu
from engine.report.operations import work_cycles
from engine.report.render import library, picture, prepare, runtime
from engine.report.style_sheet import TEMPLATES, style_sheet
from engine.report.views import leads, views

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
    starting.join()
    made = environment.get_template("report.html.j2").render(
        report=data,
        pictures={name: picture(each, name) for name, each in specifications.items()},
        packed=packed(data, specifications),
        style=style_sheet(),
        script=_script(),
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


def _script() -> str:
    parts = [(TEMPLATES / name).read_text(encoding="utf-8") for name in SCRIPTS]
    return "\n".join(['"use strict";', "(() => {", *parts, "})();"])


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
        content = json.loads(_unzipped(base64.b64decode(rest.partition("<")[0], validate=True)))
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
