"""Grouped convolutions in models of both Keras: the gradients that Keras traces run on codelets of windows."""

from __future__ import annotations

from collections import Counter

import tensorflow as tf

from engine.compile import build_program
from engine.host.convolutions.windows import DepthwiseGradient, DepthwiseWindows
from engine.host.passes.pass_list import HOST_PASSES
from engine.program.run_passes import run_passes
from ipu._internal.compiler.trace import trace_step
from ipu.ipu_strategy import IPUStrategy
from keras_ext.frameworks.keras3 import Keras3
from keras_ext.frameworks.tf_keras import TFKeras
from tests.keras.helpers import Kit


def test_forward_and_both_gradients_take_windows(kit: Kit) -> None:
    framework, layers, size = Keras3() if kit.is_keras3 else TFKeras(), kit.keras.layers, (14, 14, 32)
    with IPUStrategy().scope():
        convolutions = [layers.Conv2D(32, 3, padding="same", groups=16) for _ in range(2)]
        model = kit.keras.Sequential([layers.Input(size), *convolutions, layers.Flatten(), layers.Dense(3)])
        model.compile(kit.keras.optimizers.SGD(0.1), "mse")
        model.optimizer.build(model.trainable_variables)
    batch = [tf.TensorSpec([8, *size]), tf.TensorSpec([8, 3])]
    traced = trace_step(lambda *data: framework.step(model, "train", data), batch)
    program = run_passes(build_program(traced.module, traced.roles, traced.constants), HOST_PASSES)
    windowed = [e.work for e in program.compute_sets if isinstance(e.work, DepthwiseWindows | DepthwiseGradient)]
    # forward twice, by the input of the second, by both kernels
    assert Counter(map(type, windowed)) == {DepthwiseWindows: 3, DepthwiseGradient: 2}
    assert {each.group for each in windowed} == {(2, 2)}  # which leave lanes idle on any processor
