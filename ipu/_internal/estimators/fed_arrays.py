"""Large arrays of an input function, which are fed to its graph: constants would be copied, and end at 2 GB."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import ops

v1 = tf.compat.v1
LEAST_BYTES = 1 << 20


@contextmanager
def fed_arrays() -> Iterator[dict[Any, np.ndarray]]:
    """Puts placeholders in place of large arrays in the default graph, but not in functions; yields the arrays."""
    graph, create = v1.get_default_graph(), ops._create_graph_constant
    arrays: dict[Any, np.ndarray] = {}

    def fed(value: Any, dtype: Any, shape: Any, *arguments: Any, **named: Any) -> tf.Tensor:
        is_large = isinstance(value, np.ndarray) and value.nbytes >= LEAST_BYTES and shape is None
        if not is_large or v1.get_default_graph() is not graph or value.dtype.kind not in "biuf":
            return create(value, dtype, shape, *arguments, **named)
        placeholder = v1.placeholder(dtype or value.dtype, value.shape)
        arrays[placeholder] = value.copy()  # a session would see later changes
        return placeholder

    ops._create_graph_constant = fed
    try:
        yield arrays
    finally:
        ops._create_graph_constant = create
