"""What counts as an integer where a caller gives one."""

from __future__ import annotations

from numbers import Integral
from typing import TypeGuard


def is_integer(value: object) -> TypeGuard[int]:
    """Whether a value is an integer of Python or NumPy, and no bool."""
    return isinstance(value, Integral) and not isinstance(value, bool)
