"""NumPy's arrays as those of programs, at fixed addresses."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.ir.shape import shape_of
from engine.program.work.base import Array


def array_of(values: np.ndarray) -> Array:
    """The array where NumPy has it; the caller keeps it alive."""
    address: Any = values.ctypes.data
    return Array(address, shape_of(values))
