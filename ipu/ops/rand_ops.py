"""Poprand operators: the public name of `tensorflow.python.ipu.rand_ops` (Python API, 18.14.14)."""

from __future__ import annotations

import tensorflow as tf

from ipu._internal.names.namespace import public_names
from ipu._internal.operators.checks import require
from ipu._internal.types import TensorLike

__all__ = ["dropout"]
__getattr__, __dir__ = public_names(__name__, __all__)


def dropout(
    x: TensorLike,
    rate: float = 0.5,
    noise_shape: TensorLike | None = None,
    seed: TensorLike | None = None,
    name: str | None = None,
    **kwargs: TensorLike,
) -> tf.Tensor:
    """Drops elements of `x` with probability `rate`; the others are scaled by 1 / (1 - rate).

    Args:
        x: the input tensor, of a floating-point type.
        rate: the probability that an element becomes zero, a number in [0, 1).
        noise_shape: the shape of the mask; each dimension is as in `x`, or 1 if all elements along it share the mask.
        seed: int32[2]: equal seeds drop the same elements. Without a seed each execution and replica differs.
        name: optional op name.
        **kwargs: `ref`, a tensor by whose layout the original spreads the mask over tiles, has no effect here.

    Returns:
        A tensor like `x`. Its gradient has the same mask.

    Raises:
        ValueError: `rate` is outside of [0, 1), `noise_shape` does not broadcast to the shape of `x`, or `seed` is not
            of two integers.
        TypeError: an unknown keyword argument.
    """
    if unknown := kwargs.keys() - {"ref"}:
        raise TypeError(f"Expected arguments of dropout. Received: {', '.join(sorted(unknown))}. Leave them out.")
    with tf.name_scope(name or "dropout"):
        x = tf.convert_to_tensor(x)
        require(x.dtype.is_floating, "x of a floating-point type", x.dtype.name)
        require(0 <= rate < 1, "rate in [0, 1)", rate)
        shape = tf.shape(x)
        if noise_shape is not None:
            noise = tf.TensorShape(tf.get_static_value(tf.convert_to_tensor(noise_shape, tf.int32)))
            fits = noise.rank == x.shape.rank and all(
                n in (1, d) or d is None for n, d in zip(noise.as_list(), x.shape.as_list(), strict=True)
            )
            require(fits, f"noise_shape of dimensions 1 or those of x, {x.shape}", noise)
            shape = noise.as_list()
        if seed is None:
            seed = tf.random.uniform([2], tf.int32.min, tf.int32.max, tf.int32)
        seed = tf.cast(seed, tf.int32)
        require(seed.shape == [2], "seed of two integers", f"the shape {seed.shape}")
        if rate == 0:
            return tf.identity(x)
        keeps = tf.random.stateless_uniform(shape, seed) >= rate
        return tf.where(keeps, x * tf.constant(1 / (1 - rate), x.dtype), tf.zeros([], x.dtype))
