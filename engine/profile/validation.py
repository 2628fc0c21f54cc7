"""Published figures beside the chip model's estimates, and the errors of the model for figures held out of its fit."""

from __future__ import annotations

import json
import tomllib
from functools import cache
from math import sqrt
from typing import Any

from engine.frozen import frozen
from engine.target import DATA

FEW_COLUMNS = 64
DENSE = {True: f"dense products from {FEW_COLUMNS} columns on", False: f"dense products below {FEW_COLUMNS} columns"}
STEPS = "recurrent and small-step programs"
ESTIMATES = DATA / "estimates.json"


@frozen
class Measurement:
    """A published figure and the model's estimate; `fitted` if it was used in making the model.

    `group` is the regime of the figure. `part` is the part of a step that it measures: "compute", "exchange", "sync",
    "host" or "". A `caveat` says why the estimate is far off. `subject` is what is estimated: ("estimator", its name,
    its arguments), ("program", its name, the figure) or ("model", its arguments).
    """

    name: str
    group: str
    kind: str
    published: float
    unit: str
    fitted: bool
    source: str
    estimate: float
    subject: tuple[Any, ...]
    tolerance: float | None = None
    part: str = ""
    caveat: str = ""

    @property
    def error(self) -> float:
        """Error relative to the published figure, positive if the estimate is larger."""
        return (self.estimate - self.published) / self.published


@frozen
class Bound:
    """The errors of a group's held-out rows: number, root mean square, and the worst with its row."""

    group: str
    held_out: int
    rms: float
    worst: float
    worst_name: str

    def __str__(self) -> str:
        rows = "1 figure" if self.held_out == 1 else f"{self.held_out} figures"
        return f"{self.group}: rms {self.rms:.0%}, worst {self.worst:+.0%} of {rows} held out"


@cache
def measurements() -> tuple[Measurement, ...]:
    """All published figures, with the estimates that `python -m benchmarks.published --write` has stored."""
    kept: dict[str, float] = json.loads(ESTIMATES.read_text()) if ESTIMATES.exists() else {}
    return tuple(Measurement(estimate=kept.get(row["name"], float("nan")), **row) for row in _rows())


@cache
def bounds() -> dict[str, Bound]:
    """The bound of each group that has held-out rows."""
    groups: dict[str, list[Measurement]] = {}
    for each in measurements():
        if not each.fitted:
            groups.setdefault(each.group, []).append(each)
    return {group: _bound(group, members) for group, members in groups.items()}


def _bound(group: str, members: list[Measurement]) -> Bound:
    worst = max(members, key=lambda each: abs(each.error))
    rms = sqrt(sum(each.error**2 for each in members) / len(members))
    return Bound(group, len(members), rms, worst.error, worst.name)


def _rows() -> list[dict[str, Any]]:
    tables = tomllib.loads((DATA / "measurements.toml").read_text())
    found = []
    for row in tables["measurement"]:
        found.append(row | {"subject": ("estimator", row.pop("estimator"), row.pop("arguments"))})
    for row in tables["dense_products"]:
        found += _dense_products(row)
    for row in tables["program"]:
        found += _program(row)
    for row in tables["whole_model"]:
        found.append(row | {"kind": "M", "subject": ("model", row.pop("arguments"))})
    return found


def _dense_products(row: dict[str, Any]) -> list[dict[str, Any]]:
    kind, size = row["element_type"], row["size"]
    return [
        {
            "name": f"{size} x {size} times {columns} columns, {kind}",
            "group": DENSE[columns >= FEW_COLUMNS],
            "kind": "M",
            "published": teraflops * 1e12,
            "unit": "flop per second",
            "fitted": row["fitted"],
            "source": row["source"],
            "caveat": row.get("caveat", ""),
            "subject": ("estimator", "dense_product", {"element_type": kind, "size": size, "columns": columns}),
        }
        for columns, teraflops in zip(row["columns"], row["teraflops"], strict=True)
    ]


def _program(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "name": f"{row['name']}, {FIGURES[figure]}",
            "group": STEPS if figure == "cycles" else row["bytes_group"],
            "kind": "model",
            "published": published,
            "unit": "cycles" if figure == "cycles" else "bytes",
            "fitted": row["fitted"] if isinstance(row["fitted"], bool) else figure in row["fitted"],
            "source": row["source"],
            "caveat": row.get("caveat", ""),
            "subject": ("program", row["name"], figure),
        }
        for figure, published in row["published"].items()
    ]


FIGURES = {"cycles": "cycles", "total": "all tiles", "max": "fullest tile"}


def table(kind: str = "") -> str:
    """The measurements one per line: name, published, estimate, error. `kind` selects those of one kind of subject."""
    lines = [f"{'measurement':<56}{'published':>11}{'estimate':>11}{'error':>9}"]
    for each in measurements():
        if kind in ("", each.subject[0]):
            name = each.name + (" *" if each.fitted else "")
            lines.append(f"{name:<56}{each.published:>11.4g}{each.estimate:>11.4g}{each.error:>+9.1%}")
    return "\n".join([*lines, "* used in making the model"])


def table_of_bounds() -> str:
    """The bounds one per line: regime, number of held-out figures, root mean square, worst error."""
    lines = [f"{'regime':<44}{'held out':>9}{'rms':>7}{'worst':>8}"]
    for each in bounds().values():
        lines.append(f"{each.group:<44}{each.held_out:>9}{each.rms:>7.0%}{each.worst:>+8.0%}  {each.worst_name}")
    return "\n".join(lines)
