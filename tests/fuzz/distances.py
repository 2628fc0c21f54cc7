"""Distances of arrays, in NumPy alone."""

from __future__ import annotations

import ml_dtypes
import numpy as np

EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
TINY = {"float16": 2.0**-24, "bfloat16": 2.0**-126, "float32": 2.0**-126, "float64": 2.0**-1022}
"""Numbers smaller than this may have been flushed to 0 (f16: the distance between denormals)."""


def widened(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64) if x.dtype.kind in "fV" or x.dtype == ml_dtypes.bfloat16 else x


def is_float(x: np.ndarray) -> bool:
    return x.dtype.kind == "f" or x.dtype == ml_dtypes.bfloat16


def distance(result: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """The distance of each element; infinite where only one is NaN, or an infinity that the other is not."""
    if not is_float(expected):
        return np.where(result == expected, 0.0, np.inf)
    a, b = widened(result), widened(expected)
    with np.errstate(all="ignore"):
        difference = np.abs(a - b)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    return np.where(same, 0.0, np.where(np.isfinite(a) & np.isfinite(b), difference, np.inf))
