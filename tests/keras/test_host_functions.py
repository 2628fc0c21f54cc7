"""Layers that call the host, in models that are cut into micro-batches and pipeline stages."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from ipu.ipu_strategy import IPUStrategy

X = np.random.default_rng(0).random((16, 3)).astype(np.float32)
Y = X.sum(1, keepdims=True)


class Observed(keras.layers.Layer):
    """Passes its input through a function of the host, if there is one."""

    def __init__(self, note: Callable[[int], None] | None) -> None:
        super().__init__()
        self.note = note

    def call(self, inputs: Any) -> Any:
        if self.note is None:
            return inputs
        output = tf.py_function(lambda x: (self.note(len(x)), 1.0 * x)[1], [inputs], inputs.dtype)
        output.set_shape(inputs.shape)
        return output

    def compute_output_shape(self, shape: Any) -> Any:
        return shape


def trained(kind: str, notes: list[tuple[int, int]] | None) -> list[np.ndarray]:
    """The weights after two updates of four micro-batches with two rows each."""
    note = [None if notes is None else partial(lambda k, rows: notes.append((k, rows)), k) for k in range(2)]
    stage = keras.ipu.PipelineStage if kind == "pipeline" else nullcontext
    with IPUStrategy().scope():
        keras.utils.set_random_seed(1)
        inputs = keras.Input((3,))
        with stage(0):
            x = keras.layers.Dense(4, activation="tanh")(Observed(note[0])(inputs))
        with stage(1):
            outputs = keras.layers.Dense(1)(Observed(note[1])(x))
        model = keras.Model(inputs, outputs)
        if kind == "pipeline":
            model.set_pipelining_options(gradient_accumulation_steps_per_replica=4, device_mapping=[0, 0])
        else:
            model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=4)
        model.compile("sgd", "mse", steps_per_execution=4)
        model.fit(X, Y, batch_size=2, verbose=0, shuffle=False)
    return model.get_weights()


@pytest.mark.parametrize("kind", ["accumulation", "pipeline"])
def test_each_micro_batch_calls_each_layer_once(kind: str) -> None:
    """Calls of the host and their gradients do not change the training."""
    notes: list[tuple[int, int]] = []
    for found, expected in zip(trained(kind, notes), trained(kind, None), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)
    assert sorted(notes) == [(0, 2)] * 8 + [(1, 2)] * 8
