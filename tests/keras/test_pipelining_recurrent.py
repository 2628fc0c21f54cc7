"""Loops in stages: layers that are not unrolled, and users' loops, give the bits of the model without stages."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from ipu.config import IPUConfig
from ipu.ops.pipelining_ops import PipelineSchedule
from keras_ext.pipelining.schedules import pipeline_report
from tests.keras.helpers import CLASSES, KITS, Kit
from tests.keras.pipelines import BATCH, assert_same_bits, train_both, twins

TIME, FEATURES, STEPS = 4, 3, 12
GROUPED, INTERLEAVED, SEQUENTIAL = PipelineSchedule


def in_two(kit: Kit, *layers: Any) -> Any:
    """A sequential model of these layers and a last one."""
    inputs, last = kit.keras.layers.Input((TIME, FEATURES)), kit.keras.layers.Dense(CLASSES)
    return kit.keras.Sequential([inputs, *layers, last])


def lstm(kit: Kit) -> Any:
    layers = kit.keras.layers
    return in_two(kit, layers.LSTM(4, return_sequences=True), layers.LSTM(3))


def gru(kit: Kit) -> Any:
    """Builds GRUs with masks of dropout, which recomputation must draw again."""
    layers = kit.keras.layers
    return in_two(kit, layers.GRU(4, return_sequences=True, recurrent_dropout=0.3), layers.GRU(3, dropout=0.3))


def bidirectional(kit: Kit) -> Any:
    layers = kit.keras.layers
    both = [layers.Bidirectional(layers.LSTM(2, return_sequences=True)), layers.Bidirectional(layers.GRU(2))]
    return in_two(kit, *both)


def popnn(kit: Kit) -> Any:
    """Builds Popnn layers with masks of dropout that are drawn at each step."""
    layers = kit.keras.ipu.layers
    return in_two(kit, layers.PopnnLSTM(4, return_sequences=True, dropout=0.3), layers.PopnnGRU(3, dropout=0.3))


def masked(kit: Kit) -> Any:
    layers = kit.keras.layers
    return in_two(kit, layers.Masking(), layers.GRU(4, return_sequences=True), layers.LSTM(3))


def own_layer(kit: Kit, call: Any) -> Any:
    """A layer of one weight, `call(x, w)`."""

    class Own(kit.keras.layers.Layer):
        def build(self, shape: Any) -> None:
            self.w = self.add_weight(shape=(shape[-1], shape[-1]), initializer="orthogonal", name="w")
            self.built = True

        def call(self, x: Any) -> Any:
            return call(x, tf.convert_to_tensor(self.w))

    return Own()


def while_loop(x: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
    def body(t: tf.Tensor, h: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return t + 1, tf.tanh(h @ w + x[:, t])

    start = (tf.constant(0), tf.zeros_like(x[:, 0]))
    return tf.while_loop(lambda t, h: t < TIME, body, start, maximum_iterations=TIME)[1]


def scan(x: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
    xs = tf.transpose(x, (1, 0, 2))
    return tf.transpose(tf.scan(lambda h, e: tf.tanh(h @ w + e), xs, tf.zeros_like(xs[0])), (1, 0, 2))


def condition(x: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
    return tf.cond(tf.reduce_sum(x) > 0, lambda: tf.tanh(x @ w), lambda: tf.nn.relu(x) * 2)


@tf.function
def function(x: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
    return tf.tanh(x @ w) * tf.sigmoid(x)


def own(kit: Kit) -> Any:
    """Three stages: a scan, a condition and the call of a function, a loop."""
    return in_two(kit, *(own_layer(kit, call) for call in (scan, condition, function, while_loop)))


MODELS: dict[str, tuple[Any, list[int]]] = {
    "lstm": (lstm, [0, 1, 1]),
    "gru": (gru, [0, 1, 1]),
    "bidirectional": (bidirectional, [0, 1, 1]),
    "popnn": (popnn, [0, 1, 1]),
    "masked": (masked, [0, 0, 1, 1]),
    "own": (own, [0, 1, 1, 2, 2]),
}
CASES = [
    ("keras", "lstm", GROUPED, False),
    ("keras", "lstm", INTERLEAVED, True),
    ("keras", "lstm", SEQUENTIAL, True),
    ("keras", "gru", GROUPED, True),
    ("keras", "bidirectional", INTERLEAVED, False),
    ("keras", "popnn", GROUPED, True),
    ("keras", "masked", GROUPED, True),
    ("keras", "own", GROUPED, True),
    ("keras", "own", SEQUENTIAL, False),
    ("tf_keras", "lstm", GROUPED, True),
    ("tf_keras", "lstm", SEQUENTIAL, False),
    ("tf_keras", "bidirectional", INTERLEAVED, True),
    ("tf_keras", "popnn", INTERLEAVED, True),
    ("tf_keras", "masked", GROUPED, False),
    ("tf_keras", "own", INTERLEAVED, True),
]


def sequences() -> tuple[np.ndarray, np.ndarray]:
    """Sequences, some with zeros at the end, which masks leave out."""
    random = np.random.default_rng(3)
    x = random.normal(size=(2 * STEPS * BATCH, TIME, FEATURES)).astype(np.float32)
    x[::3, TIME // 2 :] = 0.0
    return x, random.integers(0, CLASSES, len(x))


@functools.cache
def trained(kit_name: str, name: str, schedule: PipelineSchedule, recompute: bool) -> tuple[Any, Any]:
    config = IPUConfig()
    config.allow_recompute = recompute
    build, stages = MODELS[name]
    models = twins(KITS[kit_name], build, stages, STEPS, pipeline_schedule=schedule)
    for model, ipus in zip(models, (1, 2 if max(stages) == 1 else 4), strict=True):
        config.auto_select_ipus = ipus
        config.configure_ipu_system()
        train_both(KITS[kit_name], (model,), *sequences(), epochs=1)
    return models


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("kit", "name", "schedule", "recompute"),
    CASES,
    ids=[f"{kit}-{name}-{schedule.name}{'-recompute' * recompute}" for kit, name, schedule, recompute in CASES],
    indirect=["kit"],
)
def test_same_bits(kit: Kit, name: str, schedule: PipelineSchedule, recompute: bool) -> None:
    models = trained("keras" if kit.is_keras3 else "tf_keras", name, schedule, recompute)
    assert_same_bits(models)
    rows = models[1].get_pipeline_schedule("train")
    assert {row.stage for row in rows if row.kind == "backward"} == set(range(max(MODELS[name][1]) + 1))


def test_weights_are_in_the_stages_of_their_loops(kit: Kit) -> None:
    """Layers of tf_keras also call functions: their gradients are summed in the layer's stage."""
    _, model = trained("keras" if kit.is_keras3 else "tf_keras", "lstm", SEQUENTIAL, kit.is_keras3)
    report = pipeline_report(model)
    sizes = [sum(4 * weight.size for weight in layer.get_weights()) for layer in model.layers]
    assert [each.contents.weights for each in report.stages] == [sizes[0], sizes[1] + sizes[2]]
    assert [each.contents.accumulators for each in report.stages] == [sizes[0], sizes[1] + sizes[2]]
