"""Checks that infeed and outfeed queues share."""

from __future__ import annotations

from engine.errors import ConfigurationError
from engine.integers import checked_integer
from ipu._internal.compiler.tokens import current_ordinal


class _Deduced(int):
    """The ordinal that stands for the device in whose scope a queue is created."""


DEDUCED: int = _Deduced(0)
"""The default ordinal of queues."""


def check_ordinal(ordinal: object) -> int | None:
    """The device ordinal. Raises ConfigurationError, a ValueError, for anything but None and integers from 0."""
    if ordinal is DEDUCED:
        return current_ordinal()
    return None if ordinal is None else checked_integer("device_ordinal", ordinal, 0)


def check_device(queue: str, ordinal: int | None) -> None:
    """Raises ConfigurationError where the program being traced is for another device than a queue's (None: any)."""
    here = current_ordinal()
    if ordinal not in (None, here):
        raise ConfigurationError(
            f"Expected the {queue} queue of device_ordinal={ordinal} in programs of /device:IPU:{ordinal}. Received: "
            f"its use in one of /device:IPU:{here}. Make the queue with device_ordinal={here}, or None for any device."
        )
