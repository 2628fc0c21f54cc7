"""`tf.contrib.layers` for `python -m ipu.run --tf1`: layers with the names of variables that checkpoints have."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow.compat.v1 as v1

from ipu._internal.types import TensorLike

__all__ = [
    *("apply_regularization", "avg_pool2d", "batch_norm", "conv2d", "convolution2d", "dropout", "flatten"),
    *("fully_connected", "l1_regularizer", "l2_regularizer", "layer_norm", "linear", "max_pool2d", "one_hot_encoding"),
    *("relu", "softmax", "variance_scaling_initializer", "xavier_initializer", "xavier_initializer_conv2d"),
]
Function = Callable[..., Any]
Size = int | Sequence[int]
ZEROS = v1.zeros_initializer()
softmax = v1.nn.softmax
flatten = v1.layers.flatten


def l1_regularizer(scale: float) -> Function:
    """A function of weights: `scale` times the sum of their magnitudes."""
    return lambda weights: scale * v1.reduce_sum(v1.abs(weights))


def l2_regularizer(scale: float) -> Function:
    """A function of weights: `scale` times half the sum of their squares."""
    return lambda weights: scale * v1.nn.l2_loss(weights)


def apply_regularization(regularizer: Function, weights_list: Sequence[Any] | None = None) -> Any:
    """The sum of a regularizer over weights, by default those of the collection WEIGHTS; a loss of the graph."""
    weights = v1.get_collection(v1.GraphKeys.WEIGHTS) if weights_list is None else weights_list
    loss = v1.add_n([regularizer(each) for each in weights]) if weights else v1.constant(0.0)
    v1.add_to_collection(v1.GraphKeys.REGULARIZATION_LOSSES, loss)
    return loss


def xavier_initializer(uniform: bool = True, seed: int | None = None, dtype: Any = v1.float32) -> Any:
    """Initial values by Glorot and Bengio."""
    kind = v1.glorot_uniform_initializer if uniform else v1.glorot_normal_initializer
    return kind(seed=seed, dtype=dtype)


xavier_initializer_conv2d = xavier_initializer


def variance_scaling_initializer(
    factor: float = 2.0, mode: str = "FAN_IN", uniform: bool = False, seed: int | None = None, dtype: Any = v1.float32
) -> Any:
    """Initial values whose variance is `factor` divided by the number of inputs, of outputs, or the mean of both."""
    distribution = "uniform" if uniform else "truncated_normal"
    return v1.variance_scaling_initializer(factor, mode.lower(), distribution, seed=seed, dtype=dtype)


def fully_connected(
    inputs: TensorLike,
    num_outputs: int,
    activation_fn: Function | None = v1.nn.relu,
    normalizer_fn: Function | None = None,
    normalizer_params: Mapping[str, Any] | None = None,
    weights_initializer: Any = None,
    weights_regularizer: Any = None,
    biases_initializer: Any = ZEROS,
    reuse: Any = None,
    trainable: bool = True,
    scope: Any = None,
) -> Any:
    """A dense layer with variables `weights`, and `biases` unless it normalizes."""
    with v1.variable_scope(scope, "fully_connected", [inputs], reuse=reuse):
        x = v1.convert_to_tensor(inputs)
        shape = [x.shape.as_list()[-1], num_outputs]
        initial = weights_initializer or xavier_initializer()
        weights = v1.get_variable("weights", shape, x.dtype, initial, weights_regularizer, trainable)
        result = v1.tensordot(x, weights, 1)
        return _ended(result, activation_fn, normalizer_fn, normalizer_params, biases_initializer, trainable)


relu = fully_connected
linear = functools.partial(fully_connected, activation_fn=None)


def convolution2d(
    inputs: TensorLike,
    num_outputs: int,
    kernel_size: Size,
    stride: Size = 1,
    padding: str = "SAME",
    activation_fn: Function | None = v1.nn.relu,
    normalizer_fn: Function | None = None,
    normalizer_params: Mapping[str, Any] | None = None,
    weights_initializer: Any = None,
    weights_regularizer: Any = None,
    biases_initializer: Any = ZEROS,
    reuse: Any = None,
    trainable: bool = True,
    scope: Any = None,
) -> Any:
    """A convolution of images [batch, height, width, channels], with variables as `fully_connected`."""
    with v1.variable_scope(scope, "Conv", [inputs], reuse=reuse):
        x = v1.convert_to_tensor(inputs)
        shape = [*_pair(kernel_size), x.shape.as_list()[-1], num_outputs]
        initial = weights_initializer or xavier_initializer()
        weights = v1.get_variable("weights", shape, x.dtype, initial, weights_regularizer, trainable)
        result = v1.nn.conv2d(x, weights, [1, *_pair(stride), 1], padding)
        return _ended(result, activation_fn, normalizer_fn, normalizer_params, biases_initializer, trainable)


conv2d = convolution2d


def _ended(
    x: Any, activation: Function | None, normalizer: Function | None, named: Any, initial: Any, trainable: bool
) -> Any:
    """The results of a layer after its normalization or biases, and its activation."""
    if normalizer is not None:
        x = normalizer(x, **(named or {}))
    elif initial is not None:
        x += v1.get_variable("biases", x.shape.as_list()[-1:], x.dtype, initial, trainable=trainable)
    return x if activation is None else activation(x)


def max_pool2d(
    inputs: TensorLike, kernel_size: Size, stride: Size = 2, padding: str = "VALID", scope: Any = None
) -> Any:
    """Maxima over windows of images."""
    return v1.layers.max_pooling2d(inputs, _pair(kernel_size), _pair(stride), padding, name=scope)


def avg_pool2d(
    inputs: TensorLike, kernel_size: Size, stride: Size = 2, padding: str = "VALID", scope: Any = None
) -> Any:
    """Means over windows of images."""
    return v1.layers.average_pooling2d(inputs, _pair(kernel_size), _pair(stride), padding, name=scope)


def _pair(size: Size) -> list[int]:
    return [size, size] if isinstance(size, int) else list(size)


def dropout(
    inputs: TensorLike, keep_prob: Any = 0.5, noise_shape: Any = None, is_training: Any = True, scope: Any = None
) -> Any:
    """Zeros in place of a part of the elements, while training."""
    return v1.layers.dropout(inputs, 1.0 - keep_prob, noise_shape, training=is_training, name=scope)


def one_hot_encoding(labels: TensorLike, num_classes: int, on_value: float = 1.0, off_value: float = 0.0) -> Any:
    """Rows with one element of `on_value`, float32 [..., num_classes]."""
    return v1.one_hot(labels, num_classes, on_value, off_value)


def layer_norm(
    inputs: TensorLike,
    center: bool = True,
    scale: bool = True,
    activation_fn: Function | None = None,
    reuse: Any = None,
    trainable: bool = True,
    begin_norm_axis: int = 1,
    begin_params_axis: int = -1,
    scope: Any = None,
) -> Any:
    """Layer normalization over the axes from `begin_norm_axis` on, with variables `beta` and `gamma`."""
    with v1.variable_scope(scope, "LayerNorm", [inputs], reuse=reuse):
        x = v1.convert_to_tensor(inputs)
        size, shape = len(x.shape), x.shape.as_list()[begin_params_axis:]
        mean, variance = v1.nn.moments(x, list(range(begin_norm_axis % size, size)), keep_dims=True)
        x = (x - mean) * v1.rsqrt(variance + (1e-3 if x.dtype == v1.float16 else 1e-12))
        initial = ((center, "beta", ZEROS), (scale, "gamma", v1.ones_initializer()))
        made = [
            v1.get_variable(name, shape, x.dtype, i, trainable=trainable) if on else None for on, name, i in initial
        ]
        x = x if made[1] is None else x * made[1]
        x = x if made[0] is None else x + made[0]
        return x if activation_fn is None else activation_fn(x)


def batch_norm(
    inputs: TensorLike,
    decay: float = 0.999,
    center: bool = True,
    scale: bool = False,
    epsilon: float = 0.001,
    activation_fn: Function | None = None,
    updates_collections: str | None = v1.GraphKeys.UPDATE_OPS,
    is_training: Any = True,
    reuse: Any = None,
    fused: bool | None = None,
    trainable: bool = True,
    scope: Any = None,
) -> Any:
    """Batch normalization. Moving averages are updated by the operations in `updates_collections`, or at once."""
    with v1.variable_scope(scope, "BatchNorm", [inputs], reuse=reuse) as own:
        layer = v1.layers.BatchNormalization(
            *(-1, decay, epsilon, center, scale),
            fused=fused,
            trainable=trainable,
            name=own.name,
            _scope=own,
            _reuse=reuse,
        )
        x = layer.apply(inputs, training=is_training)
        updates = layer.updates if updates_collections is None else []
        for each in layer.updates if updates_collections not in (None, v1.GraphKeys.UPDATE_OPS) else []:
            v1.add_to_collection(updates_collections, each)
        with v1.control_dependencies(updates):
            x = v1.identity(x)
        return x if activation_fn is None else activation_fn(x)
