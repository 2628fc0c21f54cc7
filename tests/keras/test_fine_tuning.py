"""A frozen base with a new head, then the base unfrozen: the recipe of transfer learning, as on plain Keras."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from engine.compile import build_program
from ipu._internal.compiler.trace import trace_step
from ipu.ipu_strategy import IPUStrategy
from keras_ext.frameworks.keras3 import Keras3
from keras_ext.frameworks.tf_keras import TFKeras
from tests.keras.helpers import CLASSES, Kit, both_frameworks

GENERATOR = np.random.default_rng(5)
IMAGES = GENERATOR.normal(size=(16, 6, 6, 3)).astype(np.float32)
LABELS = GENERATOR.integers(0, CLASSES, 16)


def with_base(kit: Kit, **arguments: bool) -> Any:
    """A model whose second layer is a base of convolutions and batch norms, called with the arguments, below a head."""
    layers = kit.keras.layers
    hidden = [layers.Conv2D(4, 3, use_bias=False), layers.BatchNormalization(), layers.Activation("relu")]
    base = kit.keras.Sequential([layers.Input(IMAGES.shape[1:]), *hidden, layers.DepthwiseConv2D(3)], name="base")
    inputs = kit.keras.Input(IMAGES.shape[1:])
    pooled = layers.GlobalAveragePooling2D()(base(inputs, **arguments))
    return kit.keras.Model(inputs, layers.Dense(CLASSES, "softmax")(pooled))


@both_frameworks
@pytest.mark.parametrize("arguments", [{}, {"training": False}], ids=["training", "inference"])
def test_frozen_then_unfrozen(kit: Kit, arguments: dict[str, bool]) -> None:
    """A new step is used after freezing, and after unfreezing."""

    def program(model: Any) -> Any:
        def fitted() -> Any:
            return model.fit(IMAGES, LABELS, batch_size=8, epochs=2, shuffle=False, verbose=0).history

        base, results = model.layers[1], [fitted()]
        for trainable in (False, True):
            base.trainable = trainable
            before = base.get_weights()
            model.compile(kit.keras.optimizers.SGD(0.1), model.loss, run_eagerly=model.run_eagerly)
            results += [fitted(), model.predict(IMAGES, verbose=0)]
            moved = [bool(np.any(a != b)) for a, b in zip(before, base.get_weights(), strict=True)]
            # In Keras 3 `fit` overrules training=False, so moving averages change that do not change in tf_keras.
            assert moved[0] == trainable and any(moved) == trainable
        return results

    kit.assert_same(program, lambda: with_base(kit, **arguments))


@both_frameworks
def test_frozen_layers_cost_no_gradients(kit: Kit) -> None:
    """A step with a frozen base only has the multiplications of its forward pass and of the head."""
    framework = Keras3() if kit.is_keras3 else TFKeras()

    def multiply_adds(kind: str, trainable: bool) -> int:
        with IPUStrategy().scope():
            model = kit.compiled(with_base(kit))
            model.layers[1].trainable = trainable
            model.optimizer.build(model.trainable_variables)
        batch = [tf.TensorSpec([8, *IMAGES.shape[1:]]), tf.TensorSpec([8], tf.int64)]
        traced = trace_step(lambda *data: framework.step(model, kind, data), batch)
        program = build_program(traced.module, traced.roles, traced.constants)
        return sum(each.work_estimate.multiply_adds for each in program.compute_sets)

    of_head = 8 * 4 * CLASSES
    assert multiply_adds("train", False) == multiply_adds("test", True) + of_head < multiply_adds("train", True)
