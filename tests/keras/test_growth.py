"""Growth of a training step's program in layers, lengths, replicas and accumulated steps: counted, never timed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from engine.compile import build_program
from engine.partition.accumulation import Accumulation
from engine.profile.loops import runs_of, unknown_loops
from ipu._internal.compiler.accumulation import accumulated
from ipu._internal.compiler.marks import Marks, marking
from ipu._internal.compiler.trace import TracedStep, trace_step
from ipu.ipu_strategy import IPUStrategy
from keras_ext.frameworks.keras3 import Keras3

BATCH, WIDTH = 4, 8


class Size(NamedTuple):
    """Compute sets of a program; elements computed and multiplied in a step; bytes of all its arrays."""

    compute_sets: int
    elements: int
    array_bytes: int


def traced_step(build: Callable[[int], keras.Model], count: int) -> tuple[TracedStep, Marks, list[Any]]:
    """A training step, the marks on its gradients, and the variables of its metrics."""
    with IPUStrategy().scope():
        model = build(count)
        model.compile(keras.optimizers.Adam(), "mse")
        model.optimizer.build(model.trainable_variables)
    batch: list[Any] = [tf.TensorSpec([BATCH, *each.shape[1:]]) for each in (model.inputs[0], model.outputs[0])]
    with marking() as marks:
        traced = trace_step(lambda *data: Keras3().step(model, "train", data), batch)
    return traced, marks, Keras3().metric_variables(model)


def size_of(traced: TracedStep) -> Size:
    """The size of a step's program, which is not run."""
    program = build_program(traced.module, traced.roles, traced.constants)
    assert unknown_loops(program) == 0
    elements, arrays = 0, {}
    for runs, each in zip(runs_of(program), program.compute_sets, strict=True):
        elements += runs * (sum(each.work_estimate.elements.values()) + each.work_estimate.multiply_adds)
        arrays.update({span.buffer: span.buffer.shape.bytes for span in (*each.reads, *each.writes)})
    return Size(len(program.compute_sets), elements, sum(arrays.values()))


def size_of_step(build: Callable[[int], keras.Model], count: int) -> Size:
    """The size of one training step."""
    traced, marks, _ = traced_step(build, count)
    once = list(marks.updated_once.values())
    return size_of(accumulated(traced, Accumulation(), once=once, metrics=()))


def is_at_most_linear(sizes: list[Size]) -> bool:
    """Whether sizes of one, two and four times as much grow at most in proportion."""
    small, middle, large = (np.array(each) for each in sizes)
    return bool((small > 0).all() and (large - middle <= 2 * (middle - small)).all())


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
        # The work of a loop's iterations is tested by default in test_recurrent_growth.py.
        pytest.param(recurrent(layers.LSTM), (12, 24, 48), marks=pytest.mark.explore),
        pytest.param(recurrent(layers.GRU), (12, 24, 48), marks=pytest.mark.explore),
    ],
    ids=["attention", "convolutions", "LSTM", "GRU"],
)
def test_growth_is_at_most_linear(build: Callable[[int], keras.Model], counts: tuple[int, int, int]) -> None:
    sizes = [size_of_step(build, count) for count in counts]
    assert is_at_most_linear(sizes), sizes


def test_growth_in_replicas_and_accumulated_steps_is_at_most_linear() -> None:
    """All replicas' micro-batches are iterations of one loop, which adds no compute sets."""
    traced, marks, metrics = traced_step(convolutions, 1)
    names: dict[str, Any] = {"once": list(marks.updated_once.values()), "metrics": metrics}
    for sizes in (
        [size_of(accumulated(traced, Accumulation(replicas=count), **names)) for count in (2, 4, 8)],
        [size_of(accumulated(traced, Accumulation(steps=count, replicas=2), **names)) for count in (2, 4, 8)],
    ):
        assert is_at_most_linear(sizes), sizes
        assert len({each.compute_sets for each in sizes}) == 1
        assert sizes[-1].elements > 2 * sizes[0].elements
