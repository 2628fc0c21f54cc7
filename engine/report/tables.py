"""Column titles as attributes of table cells: on a phone rows are blocks without a table head."""

from __future__ import annotations

import re

TABLE = re.compile(r"<table.*?</table>", re.DOTALL)
HEAD = re.compile(r"<thead>(.*?)</thead>", re.DOTALL)
TITLE = re.compile(r"<th\b[^>]*>(.*?)</th>", re.DOTALL)
TAG = re.compile(r"<[^>]*>")
ROW = re.compile(r"<tr\b.*?</tr>", re.DOTALL)
CELL = re.compile(r"<(t[dh])\b")


def labelled(html: str) -> str:
    """The page with a `data-label` in each cell, the column's title, in tables with a head."""
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
