"""Statistics operators: the public names of `tensorflow.python.ipu.statistics_ops` (Python API, 18.14.17)."""

from __future__ import annotations

import tensorflow as tf

from ipu._internal.names.namespace import public_names
from ipu._internal.operators.checks import floating, require
from ipu._internal.types import TensorLike

__all__ = ["fixed_width_bins", "histogram", "histogram_normalize", "histogram_update"]
__getattr__, __dir__ = public_names(__name__, __all__)


def fixed_width_bins(inputs: TensorLike, n_bins: int) -> tf.Tensor:
    """`n_bins` evenly spaced levels from the least to the greatest of `inputs`.

    Args:
        inputs: float16 or float32 [n].
        n_bins: the number of levels; a histogram over them has one bin more.

    Returns:
        [n_bins] of the type of `inputs`.

    Raises:
        ValueError: `inputs` is of another rank or type.
    """
    values = _vector(inputs, "inputs")
    wide = tf.cast(values, tf.float32)
    return tf.cast(tf.linspace(tf.reduce_min(wide), tf.reduce_max(wide), n_bins), values.dtype)


def histogram(inputs: TensorLike, levels: TensorLike, absolute_of_input: bool = False) -> tf.Tensor:
    """Counts the values between levels; a value equal to a level counts above it.

    Args:
        inputs: float16 or float32 [n].
        levels: ascending, float16 or float32 [m].
        absolute_of_input: whether to count magnitudes.

    Returns:
        float32 [m + 1]: how many are below the first level, ..., at or above the last. NaN counts as below.

    Raises:
        ValueError: `inputs` or `levels` are of another rank or type.
    """
    values, levels = (tf.cast(_vector(*each), tf.float32) for each in ((inputs, "inputs"), (levels, "levels")))
    if absolute_of_input:
        values = tf.abs(values)
    at_or_above = tf.reduce_sum(tf.cast(values >= levels[:, None], tf.int32), axis=1)
    bounds = tf.concat([tf.shape(values), at_or_above, [0]], 0)
    return tf.cast(bounds[:-1] - bounds[1:], tf.float32)


def histogram_update(
    hist: TensorLike, inputs: TensorLike, levels: TensorLike, absolute_of_input: bool = False
) -> tf.Tensor:
    """`hist`, float32 [m + 1], plus the `histogram` of `inputs` over the m `levels`.

    Args:
        hist: float32 [m + 1], counts so far.
        inputs: float16 or float32 [n].
        levels: ascending, float16 or float32 [m].
        absolute_of_input: whether to count magnitudes.

    Returns:
        float32 [m + 1].

    Raises:
        ValueError: as `histogram`; also for a `hist` of another type or shape.
    """
    hist = floating(hist, "hist", [tf.float32])
    added = histogram(inputs, levels, absolute_of_input)
    require(hist.shape.is_compatible_with(added.shape), f"hist of the shape {added.shape}", hist.shape)
    return hist + added


def histogram_normalize(hist: TensorLike) -> tf.Tensor:
    """A histogram, float32 [m], divided by its sum.

    Args:
        hist: the histogram; NaN results if all counts are 0.

    Returns:
        float32 [m], whose sum is 1.

    Raises:
        ValueError: `hist` is of another rank or type.
    """
    hist = _vector(floating(hist, "hist", [tf.float32]), "hist")
    return hist / tf.reduce_sum(hist)


def _vector(x: TensorLike, name: str) -> tf.Tensor:
    x = floating(x, name)
    require(x.shape.rank == 1, f"{name} of rank 1", f"the shape {x.shape}")
    return x
