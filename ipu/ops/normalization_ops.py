"""Popnn normalization operators: the public names of `tensorflow.python.ipu.normalization_ops` (18.14.8)."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ipu._internal.names.namespace import public_names
from ipu._internal.operators.normalization import Initializers, with_variables
from ipu._internal.types import TensorLike

__all__ = ["group_norm", "instance_norm", "layer_norm"]
__getattr__, __dir__ = public_names(__name__, __all__)


def group_norm(
    inputs: TensorLike,
    groups: int = 2,
    channels_axis: int = -1,
    center: bool = True,
    scale: bool = True,
    epsilon: float = 1e-06,
    param_initializers: Initializers | None = None,
    reuse: bool | None = None,
    variables_collections: Any = None,
    training: bool = True,
    trainable: bool = True,
    scope: Any = None,
    strided_channel_grouping: bool = True,
) -> tf.Tensor:
    """Functional interface for the group normalization layer (https://arxiv.org/abs/1803.08494).

    Each group of a sample's channels, over all other dimensions, gets zero mean and unit variance. Statistics are
    computed in float32. The variables `beta` and `gamma` come from `tf.compat.v1.get_variable`.

    Args:
        inputs: float16 or float32 [N, ..., C], or [N, C, ...] with `channels_axis` 1.
        groups: the number of groups, which divides C.
        channels_axis: 1 or the last dimension, which may be given as -1.
        center: whether to add beta, [C].
        scale: whether to multiply by gamma, [C].
        epsilon: small float added to variances.
        param_initializers: optional initializers, by the names "beta" and "gamma"; they are zeros and ones otherwise.
        reuse: whether the variables should be reused, for which the scope must be given.
        variables_collections: optional collections for the variables: a list for both, or lists by their names.
        training: accepted; there are no moving averages, so inference normalises in the same way.
        trainable: whether the variables belong to the trainable ones.
        scope: optional scope for variable_scope.
        strided_channel_grouping: whether channel c belongs to group c % groups, as by default, or to c // (C / groups).

    Returns:
        A tensor of the shape and type of `inputs`.

    Raises:
        ValueError: rank or number of channels are not known, `channels_axis` is neither 1 nor the last dimension,
            `groups` does not divide the number of channels, or initializers or collections have other names.
    """
    return with_variables(
        inputs,
        groups,
        channels_axis,
        center,
        scale,
        epsilon,
        param_initializers,
        reuse,
        variables_collections,
        trainable,
        scope,
        strided_channel_grouping,
        "GroupNorm",
    )


def instance_norm(
    inputs: TensorLike,
    channels_axis: int = -1,
    center: bool = True,
    scale: bool = True,
    epsilon: float = 1e-06,
    param_initializers: Initializers | None = None,
    reuse: bool | None = None,
    variables_collections: Any = None,
    training: bool = True,
    trainable: bool = True,
    scope: Any = None,
) -> tf.Tensor:
    """Functional interface for the instance normalization layer: `group_norm` with each channel as a group.

    Args:
        inputs: float16 or float32 [N, ..., C], or [N, C, ...] with `channels_axis` 1.
        channels_axis: 1 or the last dimension, which may be given as -1.
        center: whether to add beta, [C].
        scale: whether to multiply by gamma, [C].
        epsilon: small float added to variances.
        param_initializers: optional initializers, by the names "beta" and "gamma".
        reuse: whether the variables should be reused, for which the scope must be given.
        variables_collections: optional collections for the variables.
        training: accepted; there are no moving averages.
        trainable: whether the variables belong to the trainable ones.
        scope: optional scope for variable_scope.

    Returns:
        A tensor of the shape and type of `inputs`.

    Raises:
        ValueError: rank or number of channels are not known, or `channels_axis` is neither 1 nor the last dimension.
    """
    shared = (center, scale, epsilon, param_initializers, reuse, variables_collections, trainable, scope, True)
    return with_variables(inputs, None, channels_axis, *shared, "InstanceNorm")


def layer_norm(
    inputs: TensorLike,
    channels_axis: int = -1,
    center: bool = True,
    scale: bool = True,
    epsilon: float = 1e-06,
    param_initializers: Initializers | None = None,
    reuse: bool | None = None,
    variables_collections: Any = None,
    training: bool = True,
    trainable: bool = True,
    scope: Any = None,
) -> tf.Tensor:
    """Adds a layer normalization: `group_norm` with all channels, and all spatial dimensions, as one group.

    Args:
        inputs: float16 or float32 [N, ..., C], or [N, C, ...] with `channels_axis` 1.
        channels_axis: 1 or the last dimension, which may be given as -1.
        center: whether to add beta, [C].
        scale: whether to multiply by gamma, [C].
        epsilon: small float added to variances.
        param_initializers: optional initializers, by the names "beta" and "gamma".
        reuse: whether the variables should be reused, for which the scope must be given.
        variables_collections: optional collections for the variables.
        training: accepted; there are no moving averages.
        trainable: whether the variables belong to the trainable ones.
        scope: optional scope for variable_scope.

    Returns:
        A tensor of the shape and type of `inputs`.

    Raises:
        ValueError: rank or number of channels are not known, or `channels_axis` is neither 1 nor the last dimension.
    """
    shared = (center, scale, epsilon, param_initializers, reuse, variables_collections, trainable, scope, True)
    return with_variables(inputs, 1, channels_axis, *shared, "LayerNorm")
