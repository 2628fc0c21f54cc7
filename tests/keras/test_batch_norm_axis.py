"""The axis of batch normalization in Keras 3: the last one by number is -1, with the same bits."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from keras import Sequential, layers, optimizers

from ipu._internal.compiler.trace import graph_of
from ipu.ipu_strategy import IPUStrategy

SHAPE = (8, 5, 6, 4)
X = np.random.default_rng(2).normal(3, 2, SHAPE).astype(np.float32)


def normalized(axis: int, **options: bool) -> Any:
    return Sequential([layers.Input(SHAPE[1:]), layers.BatchNormalization(axis, **options)])


def trained(axis: int, scope: Any, **options: bool) -> list[np.ndarray]:
    """All weights after three steps, and a prediction."""
    with scope:
        model = normalized(axis, **options)
        model.compile(optimizers.SGD(0.5), "mse")
        model.fit(X, np.tanh(X), batch_size=4, epochs=2, shuffle=False, verbose=0)
        return [*model.get_weights(), model.predict(X, verbose=0)]


@pytest.mark.parametrize("options", [{}, {"scale": False}], ids=["scaled", "centred"])
def test_the_last_axis_by_number_has_the_bits_of_minus_one(options: dict[str, bool]) -> None:
    pairs = zip(
        trained(3, IPUStrategy().scope(), **options), trained(-1, IPUStrategy().scope(), **options), strict=True
    )
    assert all(a.tobytes() == b.tobytes() for a, b in pairs)


def test_another_axis_is_as_in_keras() -> None:
    for ours, keras in zip(trained(1, IPUStrategy().scope()), trained(1, nullcontext()), strict=True):
        np.testing.assert_allclose(ours, keras, rtol=1e-5, atol=1e-5)


def test_the_last_axis_by_number_is_traced_with_as_few_operations() -> None:
    counts = []
    for axis in (3, -1, 1):
        with IPUStrategy().scope():
            model = normalized(axis)
        graph = graph_of(lambda x, model=model: model(x, training=False), [tf.TensorSpec(SHAPE)])
        counts.append(len(graph.get_operations()))
    assert counts[0] == counts[1] < counts[2]
