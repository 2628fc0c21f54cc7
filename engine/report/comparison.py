"""Two reports beside each other: what a step costs now and before, part by part and operation by operation."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from engine.report.numbers import count
from engine.report.report import Report

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


@dataclass(frozen=True, slots=True)
class Comparison:
    """What changed from one report to another. More than `threshold` more cycles are a regression."""

    before: Report
    now: Report
    threshold: float
    parts: tuple[Line, ...]
    memory: tuple[Line, ...]
    operations: tuple[Line, ...]

    @property
    def growth(self) -> float:
        """How many more cycles a step takes, as a share of those before; negative if there are fewer."""
        before, now = (report.cycles["total"] for report in (self.before, self.now))
        if before:
            return float(now / before - 1)
        return float("inf") if now else 0.0

    @property
    def regressed(self) -> bool:
        """Whether a step takes more cycles than the threshold allows, or fits no longer."""
        return self.growth > self.threshold or (self.before.fits and not self.now.fits)

    @property
    def verdict(self) -> str:
        """One sentence."""
        change = f"{100 * self.growth:+.1f} % cycles for a step"
        if self.before.fits and not self.now.fits:
            return f"{change}, and it does not fit any longer."
        if self.growth > self.threshold:
            return f"{change}, more than the {100 * self.threshold:g} % allowed."
        return f"{change}, within the {100 * self.threshold:g} % allowed."

    def text(self) -> str:
        """Tables for a terminal, 88 characters wide."""
        lines = [f"{self.now.data['name']} against {self.before.data['name']}: {self.verdict}"]
        for title, rows in (("Cycles", self.parts), ("Memory", self.memory), ("Operations", self.operations)):
            if not rows:
                continue
            lines += ["", f"{title:<40}{'before':>15}{'now':>15}{'difference':>18}"]
            lines += [_printed(row) for row in rows]
        return "\n".join(lines) + "\n"

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
        }
        return Report(data)


def compare(before: Report, now: Report, threshold: float = THRESHOLD) -> Comparison:
    """Compares two reports; `threshold` is the growth of a step's cycles that is no regression, 0.03 for 3 %."""
    parts = tuple(
        Line(part, before.cycles[part], now.cycles[part]) for part in ("compute", "exchange", "sync", "host", "total")
    )
    memory = (
        Line("fullest tile, peak bytes", *(r.data["memory"]["peak_fullest"] for r in (before, now))),
        Line("fullest tile, always live bytes", *(r.data["memory"]["always_live_fullest"] for r in (before, now))),
        Line("mean tile, peak bytes", *(round(r.data["memory"]["peak_mean"]) for r in (before, now))),
        Line("compute sets", *(len(r.data["operations"]) for r in (before, now))),
    )
    return Comparison(before, now, threshold, parts, memory, _operations(before, now))


def _operations(before: Report, now: Report) -> tuple[Line, ...]:
    """Those of one name together, the greatest changes first; what did not change is left out."""
    sums = [_cycles_by_name(report) for report in (before, now)]
    lines = [Line(name, sums[0].get(name, 0), sums[1].get(name, 0)) for name in {**sums[0], **sums[1]}]
    changed = [line for line in lines if line.difference]
    return tuple(sorted(changed, key=lambda line: (-abs(line.difference), line.name))[:MOST])


def _cycles_by_name(report: Report) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in report.data["operations"]:
        found[row["name"]] = found.get(row["name"], 0) + row["cycles"]
    return found


def _printed(row: Line) -> str:
    name = row.name if len(row.name) <= 38 else row.name[:35] + "..."
    share = f" {100 * (row.now / row.before - 1):+.1f} %" if row.before else ""
    return f"  {name:<38}{count(row.before):>15}{count(row.now):>15}{row.difference:>+10,.0f}{share:>8}"
