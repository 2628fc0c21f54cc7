"""Growth of a training step's program in layers and sequence length: compute sets, work and arrays, never seconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from engine.compile import build_program
from engine.profile.loops import runs_of, unknown_loops
from ipu._internal.compiler.trace import trace_step
from ipu.ipu_strategy import IPUStrategy
from keras_ext.frameworks.keras3 import Keras3

BATCH, WIDTH = 4, 8


class Size(NamedTuple):
    """Compute sets of a program; elements computed and multiplied in a step; bytes of all its arrays."""

    compute_sets: int
    elements: int
    array_bytes: int


def size_of(build: Callable[[int], keras.Model], count: int) -> Size:
    """The size of the program of one training step, which is not run."""
    with IPUStrategy().scope():
        model = build(count)
        model.compile(keras.optimizers.Adam(), "mse")
        model.optimizer.build(model.trainable_variables)
    batch: list[Any] = [tf.TensorSpec([BATCH, *each.shape[1:]]) for each in (model.inputs[0], model.outputs[0])]
    traced = trace_step(lambda *data: Keras3().step(model, "train", data), batch)
    program = build_program(traced.module, traced.roles, traced.constants)
    assert unknown_loops(program) == 0
    elements, arrays = 0, {}
    for runs, each in zip(runs_of(program), program.compute_sets, strict=True):
        elements += runs * (sum(each.work_estimate.elements.values()) + each.work_estimate.multiply_adds)
        arrays.update({span.buffer: span.buffer.shape.bytes for span in (*each.reads, *each.writes)})
    return Size(len(program.compute_sets), elements, sum(arrays.values()))


def attention_layers(count: int) -> keras.Model:
    x = inputs = keras.Input((6, WIDTH))
    for _ in range(count):
        x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 4)(x, x))
    return keras.Model(inputs, x)


def convolutions(count: int) -> keras.Model:
    x = inputs = keras.Input((6, 6, WIDTH))
    for _ in range(count):
        x = layers.BatchNormalization()(layers.Conv2D(WIDTH, 3, padding="same", activation="relu")(x))
    return keras.Model(inputs, x)


def recurrent(layer: type[keras.layers.Layer]) -> Callable[[int], keras.Model]:
    """Two stacked layers, whose gradients pass through lists, over a sequence of the given length."""

    def build(length: int) -> keras.Model:
        stacked = [layer(WIDTH, return_sequences=True), layer(WIDTH)]
        return keras.Sequential([keras.Input((length, WIDTH)), *stacked])

    return build


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("build", "counts"),
    [
        (attention_layers, (1, 2, 4)),
        (convolutions, (1, 2, 4)),
        # Work of a loop's iterations by default: test_recurrent_growth.py.
        pytest.param(recurrent(layers.LSTM), (12, 24, 48), marks=pytest.mark.explore),
        pytest.param(recurrent(layers.GRU), (12, 24, 48), marks=pytest.mark.explore),
    ],
    ids=["attention", "convolutions", "LSTM", "GRU"],
)
def test_growth_is_at_most_linear(build: Callable[[int], keras.Model], counts: tuple[int, int, int]) -> None:
    small, middle, large = (np.array(size_of(build, count)) for count in counts)
    assert (small > 0).all()
    assert (large - middle <= 2 * (middle - small)).all(), (small, middle, large)
