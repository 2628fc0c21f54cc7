"""The compute sets to which the numbers in liveness and traces refer."""

from __future__ import annotations

from typing import Any


def supersteps(data: dict[str, Any]) -> list[dict[str, Any]]:
    """The compute sets of a step, or those of the fullest IPU of a pipeline, each part once."""
    return list(data["supersteps"] or data["operations"])
