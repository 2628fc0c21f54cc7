"""Layers of the IPU against Keras' own layers elsewhere: results, gradients and weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from ipu.ipu_strategy import IPUStrategy
from keras_ext.layers.errors import LayerArgumentError, LayerInputError
from tests.keras.helpers import CLASSES, Kit, assert_close

Pair = tuple[Callable[[Any], Any], Callable[[Any], Any], tuple[int, ...]]
PAIRS: dict[str, Pair] = {
    "layer": (lambda ours: ours.LayerNormalization(), lambda keras: keras.LayerNormalization(), (6,)),
    "layer over two axes": (
        lambda ours: ours.LayerNormalization(axis=(1, 3), epsilon=0.01, center=False),
        lambda keras: keras.LayerNormalization(axis=(1, 3), epsilon=0.01, center=False),
        (3, 2, 5),
    ),
    "group": (
        lambda ours: ours.GroupNormalization(groups=3, strided_channel_grouping=False),
        lambda keras: keras.GroupNormalization(groups=3),
        (5, 3, 6),
    ),
    "group, channels first": (
        lambda ours: ours.GroupNormalization(groups=2, channels_axis=1, strided_channel_grouping=False, scale=False),
        lambda keras: keras.GroupNormalization(groups=2, axis=1, scale=False),
        (4, 3, 5),
    ),
    "instance": (
        lambda ours: ours.InstanceNormalization(epsilon=0.01),
        lambda keras: keras.GroupNormalization(groups=-1, epsilon=0.01),
        (7, 3),
    ),
    "dense by rows of inputs": (
        lambda ours: ours.SerialDense(6, 2, "input_columns", "tanh"),
        lambda keras: keras.Dense(6, "tanh"),
        (5, 3),
    ),
    "dense by contraction": (
        lambda ours: ours.SerialDense(6, 3, "input_rows_kernel_columns", use_bias=False),
        lambda keras: keras.Dense(6, use_bias=False),
        (2, 9),
    ),
    "dense by outputs": (
        lambda ours: ours.SerialDense(10, 5, "kernel_rows", kernel_regularizer="l2"),
        lambda keras: keras.Dense(10, kernel_regularizer="l2"),
        (4,),
    ),
}


def on_ipu() -> bool:
    return isinstance(tf.distribute.get_strategy(), IPUStrategy)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", PAIRS)
def test_training_is_that_of_keras_own_layer(kit: Kit, name: str) -> None:
    ours, theirs, shape = PAIRS[name]
    x = np.random.default_rng(1).normal(2, 3, (8, *shape)).astype(np.float32)
    y = np.arange(8) % CLASSES

    def build() -> Any:
        layers = kit.keras.layers
        layer = ours(kit.keras.ipu.layers) if on_ipu() else theirs(layers)
        inputs = kit.keras.Input(shape)
        hidden = layers.Dense(shape[-1])(inputs)  # the layer's input needs a gradient, too
        hidden = layers.Flatten()(layer(hidden))
        return kit.keras.Model(inputs, layers.Dense(CLASSES, "softmax")(hidden))

    def program(model: Any) -> Any:
        losses = model.fit(x, y, batch_size=4, epochs=2, shuffle=False, verbose=0).history["loss"]
        return [losses, model.predict(x, batch_size=4, verbose=0)]

    kit.assert_same(program, build)


@pytest.mark.sample(1)
@pytest.mark.parametrize("factor", [1, 3])
def test_embedding(kit: Kit, factor: int) -> None:
    """Repeated indices, and a mask for the next layer."""
    x = np.random.default_rng(2).integers(0, 12, (8, 5))
    y = np.arange(8) % CLASSES

    def build() -> Any:
        layers = kit.keras.layers
        arguments = {"mask_zero": True} | ({"serialization_factor": factor} if on_ipu() else {})
        layer = (kit.keras.ipu.layers if on_ipu() else layers).Embedding(12, 4, **arguments)
        inputs = kit.keras.Input((5,), dtype="int32")
        return kit.keras.Model(inputs, layers.Dense(CLASSES, "softmax")(layers.GlobalAveragePooling1D()(layer(inputs))))

    kit.assert_same(lambda model: model.fit(x, y, batch_size=4, epochs=2, shuffle=False, verbose=0).history, build)


def test_strided_groups(kit: Kit) -> None:
    """Channel c belongs to group c % groups, as with contiguous groups after channels are put in another order."""
    layers = kit.keras.ipu.layers
    x = np.random.default_rng(3).normal(1, 2, (3, 4, 6)).astype(np.float32)
    order = np.arange(6).reshape(3, 2).T.ravel()
    expected = np.empty_like(x)
    expected[..., order] = layers.GroupNormalization(groups=2, strided_channel_grouping=False)(x[..., order])
    assert_close(layers.GroupNormalization(groups=2)(x), expected)
    half = layers.GroupNormalization(dtype=tf.float16)(x)
    assert half.dtype == tf.float16
    np.testing.assert_allclose(half, expected, atol=0.01)


def test_errors(kit: Kit) -> None:
    layers = kit.keras.ipu.layers
    for wrong, kind, message in (
        (lambda: layers.GroupNormalization(groups=4)(np.ones((2, 6))), LayerArgumentError, r"one of \[1, 2, 3, 6\]"),
        (lambda: layers.GroupNormalization(channels_axis=0)(np.ones((2, 6))), LayerInputError, "axis 0"),
        (lambda: layers.InstanceNormalization(channels_axis=3)(np.ones((2, 6))), LayerInputError, "axis 3"),
        (lambda: layers.SerialDense(4, 2, "rows"), LayerArgumentError, "input_rows_kernel_columns, kernel_rows"),
        (lambda: layers.SerialDense(4, 3, "kernel_rows")(np.ones((2, 6))), ValueError, "divisor of 4"),
        (lambda: layers.Embedding(0, 4), LayerArgumentError, "0 and 4"),
        (lambda: layers.Embedding(10, 4, serialization_factor=3), LayerArgumentError, "divisor of input_dim, 10"),
        (lambda: layers.Dropout(1.0), LayerArgumentError, "less than 1"),
        (lambda: layers.Dropout(0.5, seed=3), LayerArgumentError, r"seed=\(number, 0\)"),
    ):
        with pytest.raises(kind, match=message):
            wrong()
