"""Checks the counts of exports: the size of a batch, the iterations of a program."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from engine.integers import checked_integer
from ipu._internal.types import Nest


def checked_count(name: str, value: object) -> int:
    """The argument `name` as an int; scalar tensors, variables and arrays of integers are numbers, too.

    Raises ConfigurationError, a ValueError, for anything but an integer of at least 1.
    """
    return checked_integer(name, _scalar(value))


def _scalar(value: Nest) -> Any:
    if isinstance(value, tf.Tensor | tf.Variable) and hasattr(value, "numpy"):
        value = value.numpy()
    return value[()] if isinstance(value, np.ndarray) and value.ndim == 0 else value
