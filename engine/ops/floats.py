"""Which type an op computes in: float16 and bfloat16 in float32, rounded once at the end."""

from __future__ import annotations

import ml_dtypes
import numpy as np

HALVES = frozenset({np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)})
FLOATS = HALVES | {np.dtype(np.float32), np.dtype(np.float64)}
COMPLEX = frozenset({np.dtype(np.complex64), np.dtype(np.complex128)})
INTEGER_KINDS = "iu"


def is_float(array: np.ndarray) -> bool:
    """Whether its elements are real floats of any width."""
    return array.dtype in FLOATS


def is_complex(array: np.ndarray) -> bool:
    """Whether its elements are complex."""
    return array.dtype in COMPLEX


def is_integer(array: np.ndarray) -> bool:
    """Whether its elements are integers; pred is not."""
    return array.dtype.kind in INTEGER_KINDS


def computing(array: np.ndarray) -> np.ndarray:
    """The array in the type its arithmetic is done in."""
    return array.astype(np.float32) if array.dtype in HALVES else array


def widest(array: np.ndarray) -> np.ndarray:
    """The array in double precision, for functions that NumPy rounds more than once in single precision."""
    return array.astype(np.complex128 if is_complex(array) else np.float64)
