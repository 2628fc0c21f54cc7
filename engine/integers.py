"""The test for integers among values that callers pass, and the check of their range."""

from __future__ import annotations

from numbers import Integral
from typing import TypeGuard

from engine.errors import ConfigurationError


def is_integer(value: object) -> TypeGuard[int]:
    """Whether a value is an integer of Python or NumPy, and not a bool."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def checked_integer(name: str, value: object, least: int = 1, most: int | None = None) -> int:
    """The argument `name` as an int. Raises ConfigurationError for anything but integers from `least` to `most`."""
    if is_integer(value) and least <= value and (most is None or value <= most):
        return int(value)
    bounds = f"of at least {least}" if most is None else f"from {least} to {most}"
    nearest = most if most is not None and is_integer(value) and value > most else least
    raise ConfigurationError(
        f"Expected {name} to be an integer {bounds}. Received: {value!r}. Nearest legal value: {nearest}."
    )
