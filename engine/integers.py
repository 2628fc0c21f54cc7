"""The test for integers among values that callers pass."""

from __future__ import annotations

from numbers import Integral
from typing import TypeGuard


def is_integer(value: object) -> TypeGuard[int]:
    """Whether a value is an integer of Python or NumPy, and not a bool."""
    return isinstance(value, Integral) and not isinstance(value, bool)
