"""Training stacked recurrent layers takes work in proportion to the length of sequences: counted, not timed."""

from __future__ import annotations

import pytest
import tensorflow as tf

from engine.compile import prepare
from engine.ir import Module, Shape
from ipu._internal.compiler.trace import trace_step
from ipu.ipu_strategy import IPUStrategy
from keras_ext.frameworks.keras3 import Keras3
from keras_ext.frameworks.tf_keras import TFKeras
from tests.keras.helpers import Kit

BATCH, FEATURES, UNITS = 2, 3, 5
IN_PLACE = ("parameter", "get-tuple-element", "tuple", "dynamic-update-slice", "while")
"""Opcodes that write nothing, or only one row of a list that is already stored."""


def program_of(kit: Kit, layer: str, length: int) -> Module:
    """A training step, after all passes."""
    layers = kit.keras.layers
    with IPUStrategy().scope():
        first, second = (getattr(layers, layer)(UNITS, return_sequences=more) for more in (True, False))
        model = kit.keras.Sequential([kit.keras.Input((length, FEATURES)), first, second, layers.Dense(1)])
        model.compile("sgd", "mse")
        batch = [tf.TensorSpec((BATCH, length, FEATURES)), tf.TensorSpec((BATCH, 1))]
        model.optimizer.build(model.trainable_variables)
        framework = Keras3() if kit.is_keras3 else TFKeras()
        traced = trace_step(lambda *data: framework.step(model, "train", data), batch)
    return prepare(traced.module)


def elements_of_iterations(module: Module) -> list[int]:
    """The number of elements that one iteration computes, for each loop."""
    loops = [
        each for computation in module.computations() for each in computation.instructions if each.opcode == "while"
    ]
    return sorted(
        sum(
            each.array_shape.elements
            for each in loop.called[0].instructions
            if isinstance(each.shape, Shape) and each.opcode not in IN_PLACE
        )
        for loop in loops
    )


@pytest.mark.sample(1)
@pytest.mark.parametrize("layer", ["SimpleRNN", "LSTM", "GRU"])
def test_iterations_do_not_grow_with_the_sequence(kit: Kit, layer: str) -> None:
    short, long = (elements_of_iterations(program_of(kit, layer, length)) for length in (7, 28))
    assert len(short) == 4 and min(short) > BATCH * UNITS
    assert long == short
