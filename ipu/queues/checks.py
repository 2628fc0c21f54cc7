"""Checks that infeed and outfeed queues share."""

from __future__ import annotations

from typing import Any


def check_ordinal(ordinal: Any) -> int:
    """The device ordinal, 0 for None. Raises ValueError for anything but those and integers from 0."""
    if ordinal is None:
        return 0
    if isinstance(ordinal, bool) or not isinstance(ordinal, int) or ordinal < 0:
        raise ValueError(f"Expected device_ordinal to be an integer of at least 0, or None. Received: {ordinal!r}.")
    return ordinal


def check_count(name: str, value: Any, least: int, most: int) -> int:
    """The value. Raises ValueError for anything but integers from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        nearest = f" Nearest: {min(max(value, least), most)}." if isinstance(value, int) else ""
        raise ValueError(f"Expected {name} to be an integer from {least} to {most}. Received: {value!r}.{nearest}")
    return value
