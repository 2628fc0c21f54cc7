"""The report as text for a terminal or the log of a build."""

from __future__ import annotations

from textwrap import wrap
from typing import Any

from engine.report.numbers import count, percent, short

WIDTH = 88


def text(data: dict[str, Any]) -> str:
    """The report as text, 88 characters wide.

    It has a comparison if there is one, the verdict on each chip, the summary of the configured chip, and the advice.
    """
    parts = (comparison_text(data).rstrip(), verdicts_text(data), data["summary"], _advice(data))
    return "\n\n".join(part for part in parts if part) + "\n"


def verdicts_text(data: dict[str, Any]) -> str:
    """The verdict on the configured chip, then a line for each chip and a note on the cycles."""
    lines = [f"{data['name']}: {_verdict(data)}"]
    lines.append(f"  {'chip':<14}{'':<14}{'worst tile':>12}{'bytes to spare':>16}{'cycles':>14}{'samples/s':>14}")
    for each in data["targets"]:
        fits = "fits" if each["fits"] else "DOES NOT FIT"
        lines.append(
            f"  {each['title']:<14}{fits:<14}{each['worst_tile']:>12,}{each['margin_bytes']:>16,}"
            f"{each['cycles']['total']:>14,}{short(each['samples_per_second']):>14}"
        )
    share = data["speed"]["amp_peak_share"]
    error, basis = percent(data["cycles"]["error"]), data["cycles"]["basis"]
    lines += wrap(
        f"cycles are of a whole step with host transfer, ± {error} ({basis})"
        + (f"; {percent(share)} of the matrix engines' peak" if share is not None else ""),
        WIDTH,
        initial_indent="  ",
        subsequent_indent="  ",
    )
    return "\n".join(lines)


def _verdict(data: dict[str, Any]) -> str:
    target, margin = data["target"]["title"], data["memory"]["limit_bytes"] - data["memory"]["peak_fullest"]
    if data["fits"]:
        return f"fits on {target}, {count(margin)} bytes to spare on the fullest tile"
    return f"DOES NOT FIT on {target}, {count(-margin)} bytes over on tile {data['memory']['peak_tile']}"


def comparison_text(data: dict[str, Any]) -> str:
    """The tables of a report's comparison, 88 characters wide; empty for a report without one."""
    if "comparison" not in data:
        return ""
    found = data["comparison"]
    lines = wrap(f"{data['name']} against {found['before']}: {found['verdict']}", WIDTH)
    for title, key in (("Cycles", "parts"), ("Memory", "memory"), ("Operations", "operations")):
        if found[key]:
            lines += ["", f"{title:<40}{'before':>15}{'now':>15}{'difference':>18}", *map(_line, found[key])]
    if found.get("layers"):
        lines += ["", *wrap(f"Taken for the same layers: {layers_text(found['layers'])}.", WIDTH)]
    return "\n".join(lines) + "\n"


def layers_text(layers: list[dict[str, str]]) -> str:
    """Pairs of names of layers as text, the name of now first."""
    return ", ".join(f"{each['now']} ({each['before']} before)" for each in layers)


def _line(row: dict[str, Any]) -> str:
    name = row["name"] if len(row["name"]) <= 38 else row["name"][:35] + "..."
    share = f" {100 * (row['now'] / row['before'] - 1):+.1f} %" if row["before"] else ""
    return (
        f"  {name:<38}{count(row['before']):>15}{count(row['now']):>15}{row['now'] - row['before']:>+10,.0f}{share:>8}"
    )


def _advice(data: dict[str, Any]) -> str:
    lines = []
    for number, each in enumerate(data["advice"], 1):
        lines += wrap(
            f"{number}. {each['title']}. {each['text']}", WIDTH, initial_indent="  ", subsequent_indent="     "
        )
    return "\n".join(["Advice", *lines]) if lines else ""
