"""The compute sets that liveness and traces number."""

from __future__ import annotations

from typing import Any


def supersteps(data: dict[str, Any]) -> list[dict[str, Any]]:
    """All of a step, or those of the fullest IPU of a pipeline, each part once."""
    return list(data["supersteps"] or data["operations"])
