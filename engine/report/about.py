"""The basis of a report: the chip's parameters with their sources, the errors of the model, versions and seeds."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Mapping
from dataclasses import fields
from importlib import metadata
from typing import Any

from engine.profile.validation import Measurement, bounds, measurements
from engine.report.records import fields_of
from engine.target import Target, quantities

BOUND = ("group", "held_out", "rms", "worst", "worst_name")
MEASUREMENT = ("name", "published", "estimate", "unit", "error", "fitted", "source", "caveat")
PACKAGES = ("tensorflow", "keras", "tf-keras", "numpy", "numba")


def about(target: Target, seeds: Mapping[str, int]) -> dict[str, Any]:
    """The "about" section of a report's data; `seeds` are by the name of the generator."""
    return {
        "made": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": versions(),
        "seeds": dict(seeds),
        "parameters": parameters(target),
        "calibration": calibration(),
        "bounds": [fields_of(each, *BOUND) for each in bounds().values()],
    }


def versions() -> dict[str, str]:
    """Versions of this project, of Python and of those PACKAGES that are installed."""
    found = {"software-ipu": _version("software-ipu"), "python": platform.python_version()}
    found |= {name: version for name in PACKAGES if (version := _version(name))}
    return found


def parameters(target: Target) -> list[dict[str, Any]]:
    """Each quantity of the chip, with its value and source."""
    rows, names = quantities(), {field.name for field in fields(Target)}
    return [
        {"name": name, "value": getattr(target, name), "source": str(row.get("source", ""))}
        for name, row in rows.items()
        if name in names
    ]


def calibration() -> list[dict[str, Any]]:
    """The published measurements with the model's estimates, in groups."""
    groups: dict[str, list[Measurement]] = {}
    for each in measurements():
        groups.setdefault(each.group, []).append(each)
    return [
        {
            "group": group,
            "least_error": min(each.error for each in members),
            "largest_error": max(each.error for each in members),
            "rows": [fields_of(each, *MEASUREMENT) for each in members],
        }
        for group, members in groups.items()
    ]


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
