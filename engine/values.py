"""Conversion of users' arrays to the dtype that a program takes."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.errors import ConfigurationError

ORDER = "biufc"
"""Kinds of dtypes: each may be converted to any later one, and integers to each other if the values fit."""


def as_array(value: Any, name: str, dtype: np.dtype) -> np.ndarray:
    """A C-contiguous array of that dtype, the value itself if it already is one.

    Floats may be narrowed; integers have to fit. Raises TypeError for values of another kind, such as floats for
    an integer, and ValueError for rows of different lengths and integers that do not fit.
    """
    if type(value) is np.ndarray and value.dtype == dtype and value.flags.c_contiguous:
        return value
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ConfigurationError(f"Expected an array for {name!r}. Received: {error}.") from error
    if array.dtype == dtype:
        return np.ascontiguousarray(array).reshape(array.shape)
    kinds = _kind(array.dtype), _kind(dtype)
    if not array.size and not isinstance(value, np.ndarray | np.generic):
        return array.astype(dtype)
    if min(kinds) < 0 or kinds[0] > kinds[1]:
        raise TypeError(f"Expected {dtype} for {name!r}. Received: {array.dtype}. Convert it with astype({dtype}).")
    if dtype.kind in "iu" and array.size:
        limits = np.iinfo(dtype)
        least, most = int(array.min()), int(array.max())
        if least < limits.min or most > limits.max:
            received = least if least < limits.min else most
            raise ConfigurationError(f"Expected {limits.min} to {limits.max} for {name!r}. Received: {received}.")
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(array.astype(dtype)).reshape(array.shape)


def _kind(dtype: np.dtype) -> int:
    """Index of a dtype's kind in the order, signed and unsigned together; -1 for strings and objects."""
    kind = "f" if dtype.name == "bfloat16" else dtype.kind
    return ORDER.replace("u", "").find("i" if kind == "u" else kind)
