"""The comparison of two reports as text for a terminal."""

from __future__ import annotations

from textwrap import wrap
from typing import Any

from engine.report.numbers import count

WIDTH = 88


def comparison_text(data: dict[str, Any]) -> str:
    """The tables of a report's comparison, 88 characters wide; empty for a report without one."""
    if "comparison" not in data:
        return ""
    found = data["comparison"]
    lines = wrap(f"{data['name']} against {found['before']}: {found['verdict']}", WIDTH)
    for title, key in (("Cycles", "parts"), ("Memory", "memory"), ("Operations", "operations")):
        if found[key]:
            lines += ["", f"{title:<40}{'before':>15}{'now':>15}{'difference':>18}", *map(_printed, found[key])]
    if found.get("layers"):
        lines += ["", *wrap(f"Taken for the same layers: {layers_text(found['layers'])}.", WIDTH)]
    return "\n".join(lines) + "\n"


def layers_text(layers: list[dict[str, str]]) -> str:
    """Pairs of names of layers as text, that of now first."""
    return ", ".join(f"{each['now']} ({each['before']} before)" for each in layers)


def _printed(row: dict[str, Any]) -> str:
    name = row["name"] if len(row["name"]) <= 38 else row["name"][:35] + "..."
    share = f" {100 * (row['now'] / row['before'] - 1):+.1f} %" if row["before"] else ""
    return (
        f"  {name:<38}{count(row['before']):>15}{count(row['now']):>15}{row['now'] - row['before']:>+10,.0f}{share:>8}"
    )
