"""Checks that infeed and outfeed queues share."""

from __future__ import annotations

from engine.errors import ConfigurationError
from ipu._internal.compiler.tokens import current_ordinal


def check_ordinal(ordinal: object) -> int | None:
    """The device ordinal. Raises ValueError for anything but None and integers from 0."""
    if ordinal is None:
        return None
    if isinstance(ordinal, bool) or not isinstance(ordinal, int) or ordinal < 0:
        raise ValueError(f"Expected device_ordinal to be an integer of at least 0, or None. Received: {ordinal!r}.")
    return ordinal


def check_device(queue: str, ordinal: int | None) -> None:
    """Raises ConfigurationError where the program being traced is for another device than a queue's (None: any)."""
    here = current_ordinal()
    if ordinal not in (None, here):
        raise ConfigurationError(
            f"Expected the {queue} queue of device_ordinal={ordinal} in programs of /device:IPU:{ordinal}. Received: "
            f"its use in one of /device:IPU:{here}. Make the queue with device_ordinal={here}, or None for any device."
        )


def check_count(name: str, value: object, least: int, most: int) -> int:
    """The value. Raises ValueError for anything but integers from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        nearest = f" Nearest: {min(max(value, least), most)}." if isinstance(value, int) else ""
        raise ValueError(f"Expected {name} to be an integer from {least} to {most}. Received: {value!r}.{nearest}")
    return value
