"""The device model against published measurements, which give its error."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from typing import Any

from engine.profile.estimators import ESTIMATORS
from engine.target import DATA


@dataclass(frozen=True, slots=True)
class Measurement:
    """A published figure and the model's; `calibrated` if the model was fitted to it.

    `part` is the part of a step that it measures: "compute", "exchange", "sync", "host" or "". A `caveat` says why it
    is known to be far off.
    """

    name: str
    group: str
    kind: str
    published: float
    unit: str
    tolerance: float
    calibrated: bool
    source: str
    estimate: float
    part: str = ""
    caveat: str = ""

    @property
    def error(self) -> float:
        """Error relative to the published figure; positive where the model's is larger."""
        return (self.estimate - self.published) / self.published


@cache
def measurements() -> tuple[Measurement, ...]:
    """All published figures for which there are estimators, with the estimates."""
    found = []
    for row in _rows()["measurement"]:
        figures = {name: value for name, value in row.items() if name not in ("estimator", "arguments")}
        found.append(Measurement(estimate=ESTIMATORS[row["estimator"]](**row["arguments"]), **figures))
    return tuple(found)


def whole_models() -> list[dict[str, Any]]:
    """Published throughput of whole models, with the tolerance that tests hold the model to."""
    return _rows()["whole_model"]


@cache
def _rows() -> dict[str, list[dict[str, Any]]]:
    return tomllib.loads((DATA / "measurements.toml").read_text())


def worst_errors() -> dict[str, float]:
    """The largest error of each group of measurements, with its sign."""
    worst: dict[str, float] = {}
    for each in measurements():
        if abs(each.error) >= abs(worst.get(each.group, 0.0)):
            worst[each.group] = each.error
    return worst


def table() -> str:
    """The measurements one per line: name, published, estimate, error."""
    lines = [f"{'measurement':<56}{'published':>11}{'estimate':>11}{'error':>9}"]
    for each in measurements():
        name = each.name + (" *" if each.calibrated else "")
        lines.append(f"{name:<56}{each.published:>11.4g}{each.estimate:>11.4g}{each.error:>+9.1%}")
    return "\n".join([*lines, "* used in making the model"])
