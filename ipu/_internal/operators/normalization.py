"""Group normalisation with its variables; the layer and instance normalisations are groupings of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from ipu._internal.operators.checks import require
from ipu._internal.types import TensorLike

Initializers = Mapping[str, Any]


def normalized(
    inputs: TensorLike, groups: int, axis: int, beta: Any, gamma: Any, epsilon: float, strided: bool = True
) -> tf.Tensor:
    """`inputs` with zero mean and unit variance for each sample and group of channels, times `gamma` plus `beta`.

    Args:
        inputs: [N, ..., C] with `axis` the last, or [N, C, ...] with `axis` 1. Statistics are those of float32.
        groups: the number of groups, which divides C.
        axis: the dimension of the channels, not negative.
        beta: offsets [C], or None.
        gamma: factors [C], or None.
        epsilon: added to variances.
        strided: whether channel c belongs to group c % groups; otherwise groups are contiguous.
    """
    x = tf.convert_to_tensor(inputs)
    shape = tf.shape(x)
    channels, rank = x.shape.as_list()[axis], x.shape.rank
    # The channels become two dimensions, [C / groups, groups] or [groups, C / groups].
    parts = [channels // groups, groups] if strided else [groups, channels // groups]
    wide = tf.cast(tf.reshape(x, tf.concat([shape[:axis], parts, shape[axis + 1 :]], 0)), tf.float32)
    group = axis + strided
    mean, variance = tf.nn.moments(wide, [d for d in range(1, rank + 1) if d != group], keepdims=True)
    broadcast = [*[1] * axis, *parts, *[1] * (rank - axis - 1)]
    scale = tf.math.rsqrt(variance + epsilon)
    if gamma is not None:
        scale *= tf.reshape(tf.cast(gamma, tf.float32), broadcast)
    result = (wide - mean) * scale
    if beta is not None:
        result += tf.reshape(tf.cast(beta, tf.float32), broadcast)
    result = tf.reshape(tf.cast(result, x.dtype), shape)
    return tf.ensure_shape(result, x.shape)


def with_variables(
    inputs: TensorLike,
    groups: int | None,
    channels_axis: int,
    center: bool,
    scale: bool,
    epsilon: float,
    param_initializers: Initializers | None,
    reuse: bool | None,
    variables_collections: Any,
    trainable: bool,
    scope: Any,
    strided: bool,
    default_scope: str,
) -> tf.Tensor:
    """`normalized` with variables beta and gamma of a variable scope; `groups` of None are as many as channels."""
    x = tf.convert_to_tensor(inputs)
    rank = x.shape.rank
    require(rank is not None and rank >= 2, "inputs of two or more dimensions", f"the shape {x.shape}")
    axis = channels_axis + rank if channels_axis < 0 else channels_axis
    require(axis in (1, rank - 1), f"channels_axis to be 1 or the last, {rank - 1} or -1", channels_axis)
    channels = x.shape.as_list()[axis]
    require(channels is not None, "a known number of channels", f"the shape {x.shape}")
    groups = channels if groups is None else groups
    expected = f"groups to divide the {channels} channels"
    require(isinstance(groups, int) and groups > 0 and channels % groups == 0, expected, groups)
    for argument, given in (
        ("param_initializers", param_initializers),
        ("variables_collections", variables_collections),
    ):
        unknown = sorted(given.keys() - {"beta", "gamma"}) if isinstance(given, Mapping) else []
        require(not unknown, f"no names but 'beta' and 'gamma' in {argument}", unknown)
    text = isinstance(variables_collections, str)
    require(
        not text, "variables_collections to be a list of names, or lists by 'beta' and 'gamma'", variables_collections
    )
    v1 = tf.compat.v1
    defaults = {"beta": v1.zeros_initializer(), "gamma": v1.ones_initializer()} | dict(param_initializers or {})

    def variable(name: str) -> Any:
        collections = variables_collections
        if isinstance(collections, Mapping):
            collections = collections.get(name)
        return v1.get_variable(
            name,
            [channels],
            x.dtype,
            defaults[name],
            trainable=trainable,
            collections=[v1.GraphKeys.GLOBAL_VARIABLES, *collections] if collections else None,
        )

    with v1.variable_scope(scope, default_scope, [x], reuse=reuse):
        beta = variable("beta") if center else None
        gamma = variable("gamma") if scale else None
        return normalized(x, groups, axis, beta, gamma, epsilon, strided)
