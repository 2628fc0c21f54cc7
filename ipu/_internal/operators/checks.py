"""Checks that several operators share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from engine.errors import ConfigurationError
from ipu._internal.types import TensorLike


def require(holds: bool, expected: str, received: object) -> None:
    """Raises ConfigurationError, a ValueError, unless the condition holds."""
    if not holds:
        raise ConfigurationError(f"Expected {expected}. Received: {received}.")


def floating(x: TensorLike, name: str, dtypes: Sequence[tf.DType] = (tf.float16, tf.float32)) -> tf.Tensor:
    """`x` as a tensor of one of the types. Raises ConfigurationError for another type."""
    x = tf.convert_to_tensor(x)
    names = " or ".join(dtype.name for dtype in dtypes)
    require(x.dtype in dtypes, f"{name} of type {names}", x.dtype.name)
    return x


def in_float32(function: Callable[[tf.Tensor], tf.Tensor], x: TensorLike, name: str | None, default: str) -> Any:
    """`function(x)` in a name scope: computed in float32, rounded once to the type of `x`."""
    with tf.name_scope(name or default):
        x = tf.convert_to_tensor(x)
        require(x.dtype.is_floating, "x of a floating-point type", x.dtype.name)
        return tf.cast(function(tf.cast(x, tf.float32)), x.dtype)
