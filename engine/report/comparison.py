"""Comparison of two reports: the cost of a step before and now, by part and by operation."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from engine.report.operations import sums_by_name
from engine.report.report import Report
from engine.report.text import comparison_text
from engine.shown import Shown

NUMBER = re.compile(r"_(\d+)(?=/|$)")
OWNER = " update of "
"""Text before the layer whose variables an optimizer updates, in the names of operations."""


def same_layers(before: dict[str, Any], now: dict[str, Any]) -> dict[str, str]:
    """Map names of layers in `now` to different names in `before`; layers include models, optimizers and losses.

    Names that differ only in their numbers are matched in numerical order: the conv2d_3 and conv2d_4 of a second model
    are the conv2d and conv2d_1 of the first. If the names of one report are a subset of the other's, equal names are
    the same layers.
    """
    found: dict[str, str] = {}
    earlier = _by_base(before)
    for base, names in _by_base(now).items():
        others = earlier.get(base, [])
        if set(names) <= set(others) or set(others) <= set(names):
            continue
        found |= {name: other for name, other in zip(names, others, strict=False) if name != other}
    return found


def renamed(operation: str, layers: dict[str, str]) -> str:
    """The name of an operation with its layers renamed by `layers`.

    A layer is marked as new if it has no counterpart and another layer had its name before.
    """
    taken = set(layers.values())
    words = operation.split(" ")
    for at, word in enumerate(words):
        if not at or words[at - 1] == "of":
            words[at] = layers.get(word, f"{word} (new)" if word in taken else word)
    # A layer with the same name as its operation is named once (engine.ir.op_names.readable_name).
    return " ".join(word for word, previous in zip(words, ["", *words], strict=False) if word != previous)


def _by_base(report: dict[str, Any]) -> dict[str, list[str]]:
    """Names of a report's layers by base name, in the order of their numbers."""
    found: dict[str, dict[str, list[int]]] = {}
    for name in _layers(report["operations"]):
        numbers = [int((NUMBER.search(part) or "_0")[1]) for part in name.split("/")]
        found.setdefault(NUMBER.sub("", name), {})[name] = numbers
    return {base: sorted(numbers, key=numbers.__getitem__) for base, numbers in found.items()}


def _layers(rows: Iterable[dict[str, Any]]) -> set[str]:
    layers = {row["layer"] for row in rows}
    layers |= {row["name"].split(OWNER)[1] for row in rows if OWNER in row["name"]}
    return layers - {""}


THRESHOLD = 0.03
MOST = 25


@dataclass(frozen=True, slots=True)
class Line:
    """One quantity before and now."""

    name: str
    before: float
    now: float

    @property
    def difference(self) -> float:
        return self.now - self.before


@dataclass(frozen=True, slots=True, repr=False)
class Comparison(Shown):
    """Changes from one report to another. Growth of cycles by more than `threshold` is a regression.

    `layers` are pairs of names of one layer: its name in the report of now, and its name before.
    """

    before: Report
    now: Report
    threshold: float
    parts: tuple[Line, ...]
    memory: tuple[Line, ...]
    operations: tuple[Line, ...]
    layers: tuple[tuple[str, str], ...] = ()

    @property
    def growth(self) -> float:
        """Relative growth of a step's cycles: negative for fewer cycles, infinite if there were none before."""
        before, now = (report.cycles["total"] for report in (self.before, self.now))
        if before:
            return float(now / before - 1)
        return float("inf") if now else 0.0

    @property
    def regressed(self) -> bool:
        """Whether a step takes more cycles than the threshold allows, or no longer fits."""
        return self.growth > self.threshold or (self.before.fits and not self.now.fits)

    @property
    def verdict(self) -> str:
        """One sentence on growth and fit."""
        change = f"{100 * self.growth:+.1f} % cycles for a step"
        if self.before.fits and not self.now.fits:
            return f"{change}, and it no longer fits."
        if self.growth > self.threshold:
            return f"{change}, more than the {100 * self.threshold:g} % allowed."
        return f"{change}, within the {100 * self.threshold:g} % allowed."

    def text(self) -> str:
        """Tables for a terminal, 88 characters wide."""
        return comparison_text(self.report().data)

    def table(self) -> str:
        """The text without its last newline."""
        return self.text().rstrip()

    def report(self) -> Report:
        """The report of now, with the comparison as a section of its own."""
        data = dict(self.now.data)
        data["comparison"] = {
            "before": self.before.data["name"],
            "verdict": self.verdict,
            "growth": self.growth if self.growth != float("inf") else None,
            "threshold": self.threshold,
            "parts": [asdict(row) for row in self.parts],
            "memory": [asdict(row) for row in self.memory],
            "operations": [asdict(row) for row in self.operations],
            "layers": [{"now": now, "before": before} for now, before in self.layers],
        }
        return Report(data)


def compare(before: Report, now: Report, threshold: float = THRESHOLD) -> Comparison:
    """Compare two reports; `threshold` is the allowed growth of a step's cycles, 0.03 for 3 %."""
    parts = tuple(
        Line(part, before.cycles[part], now.cycles[part]) for part in ("compute", "exchange", "sync", "host", "total")
    )
    memory = (
        Line("fullest tile, peak bytes", *(r.data["memory"]["peak_fullest"] for r in (before, now))),
        Line("fullest tile, always live bytes", *(r.data["memory"]["always_live_fullest"] for r in (before, now))),
        Line("mean tile, peak bytes", *(round(r.data["memory"]["peak_mean"]) for r in (before, now))),
        Line("compute sets", *(len(r.data["operations"]) for r in (before, now))),
    )
    layers = same_layers(before.data, now.data)
    operations = _operations(before, now, layers)
    return Comparison(before, now, threshold, parts, memory, operations, tuple(sorted(layers.items())))


def _operations(before: Report, now: Report, layers: dict[str, str]) -> tuple[Line, ...]:
    """The MOST operations that changed, summed by name, the greatest changes first.

    An operation of a renamed layer has the name of now in both reports.
    """
    earlier, later = (
        {name: sums["cycles"] for name, sums in sums_by_name(each.data["operations"], "cycles").items()}
        for each in (before, now)
    )
    names = {renamed(name, layers): name for name in later}
    lines = [Line(name, earlier.get(old, 0), later[name]) for old, name in names.items()]
    lines += [Line(name, cycles, 0) for name, cycles in earlier.items() if name not in names]
    changed = [line for line in lines if line.difference]
    return tuple(sorted(changed, key=lambda line: (-abs(line.difference), line.name))[:MOST])
