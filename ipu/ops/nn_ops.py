"""Popnn primitive neural network operators: the public names of `tensorflow.python.ipu.nn_ops` (18.14.7)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import tensorflow as tf

from engine.errors import ConfigurationError
from ipu._internal.names.namespace import public_names
from ipu._internal.operators.checks import in_float32
from ipu._internal.types import TensorLike

__all__ = ["gelu", "hard_sigmoid", "multi_conv", "softmax", "swish"]
__getattr__, __dir__ = public_names(__name__, __all__)


def gelu(x: TensorLike, approximate: bool = True, name: str | None = None) -> tf.Tensor:
    """Gaussian error linear unit.

    Args:
        x: the input tensor, of a floating-point type.
        approximate: whether to use tanh, x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))), or else erf.
        name: optional op name.

    Returns:
        A tensor like `x`, computed in float32 and rounded once.
    """
    return in_float32(lambda x: tf.nn.gelu(x, approximate), x, name, "gelu")


def hard_sigmoid(x: TensorLike, name: str | None = None) -> tf.Tensor:
    """0.2 * x + 0.5, clipped to [0, 1]: a tensor like `x`."""
    return in_float32(lambda x: tf.clip_by_value(0.2 * x + 0.5, 0.0, 1.0), x, name, "hard_sigmoid")


def swish(x: TensorLike, name: str | None = None) -> tf.Tensor:
    """x * sigmoid(x): a tensor like `x`."""
    return in_float32(tf.nn.silu, x, name, "swish")


def softmax(x: TensorLike, stable: bool = False, name: str | None = None) -> tf.Tensor:
    """exp(x) over its sum along the last dimension: a tensor like `x`. `stable` is accepted: it always is."""
    return in_float32(tf.nn.softmax, x, name, "softmax")


def multi_conv(func: Callable[..., Any] | None = None, options: Mapping[str, str] | None = None) -> Any:
    """A function decorator for convolutions that do not depend on each other.

    The engine runs such convolutions in any function next to each other, so the function is called as it is.

    Args:
        func: a function of positional tensors that returns one or more tensors.
        options: Poplar's options for multi-convolutions, which have no effect here.

    Returns:
        The function, or without one a decorator.

    Raises:
        ValueError: `options` is no dictionary.
    """
    if options is not None and not isinstance(options, Mapping):
        raise ConfigurationError(f"Expected options to be a dictionary. Received: {options!r}.")
    if func is None:
        return multi_conv

    @wraps(func)
    def call(*args: TensorLike) -> Any:
        return func(*map(tf.convert_to_tensor, args))

    return call
