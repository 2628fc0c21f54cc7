"""The types in which operations compute: float32 for float16 and bfloat16, rounded once at the end."""

from __future__ import annotations

import ml_dtypes
import numpy as np

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
HALF_TYPES = frozenset({np.dtype(np.float16), BFLOAT16})
FLOATS = HALF_TYPES | {np.dtype(np.float32), np.dtype(np.float64)}
COMPLEX = frozenset({np.dtype(np.complex64), np.dtype(np.complex128)})
INTEGER_KINDS = "iu"


def is_float(array: np.ndarray) -> bool:
    """Whether the elements are real floats of any width."""
    return array.dtype in FLOATS


def is_complex(array: np.ndarray) -> bool:
    """Whether the elements are complex."""
    return array.dtype in COMPLEX


def is_integer(array: np.ndarray) -> bool:
    """Whether the elements are integers; pred is not."""
    return array.dtype.kind in INTEGER_KINDS


def computing(array: np.ndarray) -> np.ndarray:
    """The array in the type of its arithmetic."""
    return array.astype(np.float32) if array.dtype in HALF_TYPES else array


def converted(array: np.ndarray, target: np.dtype) -> np.ndarray:
    """The array in another type, rounded once to the nearest; ml_dtypes itself rounds to bfloat16 by way of float32."""
    if target != BFLOAT16 or array.dtype.itemsize < 4 or array.dtype == np.float32:
        return array.astype(target)
    if array.dtype.itemsize == 8 and array.dtype.kind in INTEGER_KINDS:
        limit = np.asarray(1 << 53, array.dtype)
        exact = (array <= limit) & ((array >= 0) if array.dtype.kind == "u" else (array >= -limit))
        array = np.where(exact, array, _cut_off(array, 64 - 53))
    bits = np.ascontiguousarray(array.astype(np.float64)).view(np.int64)
    return _cut_off(bits, 37).view(np.float64).astype(target).reshape(array.shape)


def _cut_off(bits: np.ndarray, count: int) -> np.ndarray:
    """Clears the last `count` bits of integers, and sets the bit before if one of them was set (to break ties)."""
    last = np.asarray(1 << count, bits.dtype)
    rest = bits & (last - last.dtype.type(1))
    return np.asarray((bits - rest) | np.where(rest != 0, last, np.zeros_like(last)))


def as_unsigned(array: np.ndarray) -> np.ndarray:
    """A view of the bits as unsigned integers."""
    return array.view(np.dtype(f"u{array.dtype.itemsize}"))


def widest(array: np.ndarray) -> np.ndarray:
    """The array in double precision, for functions that NumPy rounds more than once in single precision."""
    return array.astype(np.complex128 if is_complex(array) else np.float64)
