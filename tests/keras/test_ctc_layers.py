"""CTC layers: a model whose output is its loss, and the labels it predicts, against TensorFlow's operators."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from ipu import accelerate
from ipu.ipu_strategy import IPUStrategy
from tests.keras.helpers import Kit, both_frameworks, tf_keras_only

SCOPES: dict[str, Callable[[], Any]] = {"strategy": lambda: IPUStrategy().scope(), "accelerated": accelerate}
BATCH, TIME, LABELS, CLASSES = 4, 7, 3, 5


@pytest.mark.sample(1)
@pytest.mark.parametrize("from_logits", [True, False])
def test_training_and_prediction(kit: Kit, from_logits: bool) -> None:
    keras, generator = kit.keras, np.random.default_rng(5)
    features = generator.normal(size=(BATCH, TIME, 6)).astype(np.float32)
    labels = generator.integers(1, CLASSES, (BATCH, LABELS)).astype(np.int32)
    label_lengths = np.array([3, 1, 2, 3], np.int32)
    lengths = np.array([7, 5, 6, 7], np.int32)

    def time_major(x: Any) -> Any:
        x = tf.transpose(x, (1, 0, 2))
        return x if from_logits else tf.nn.log_softmax(x)

    with IPUStrategy().scope():
        inputs = [keras.Input(shape, dtype="int32") for shape in ((LABELS,), (), ())]
        data = keras.Input((TIME, 6))
        dense = keras.layers.Dense(CLASSES)
        logits = keras.layers.Lambda(time_major)(dense(data))
        loss = keras.ipu.losses.CTCLoss(from_logits=from_logits)(inputs[0], logits, inputs[1], inputs[2])
        model = keras.Model([inputs[0], data, *inputs[1:]], loss)
        model.compile(keras.optimizers.SGD(0.1), lambda y_true, y_pred: y_pred)
        predictions = keras.ipu.layers.CTCPredictionsLayer(beam_width=8, from_logits=from_logits)(logits, inputs[2])
        predicting = keras.Model([data, inputs[2]], predictions)
        predicting.compile()
    kernel = tf.Variable(dense.get_weights()[0])
    x = [labels, features, label_lengths, lengths]

    with tf.GradientTape() as tape:
        expected = tf.nn.ctc_loss(labels, features @ kernel, label_lengths, lengths, logits_time_major=False)
        mean = tf.reduce_mean(expected)
    np.testing.assert_allclose(model.predict(x, batch_size=2, verbose=0), expected, rtol=1e-4)
    history = model.fit(x, np.zeros(BATCH, np.float32), batch_size=BATCH, verbose=0).history["loss"]
    np.testing.assert_allclose(history, [mean], rtol=1e-4)
    kernel.assign_sub(0.1 * tape.gradient(mean, kernel))
    np.testing.assert_allclose(dense.get_weights()[0], kernel, rtol=1e-4, atol=1e-5)

    # TensorFlow's blank is the last class.
    shifted = tf.roll(tf.transpose(features @ kernel + dense.get_weights()[1], (1, 0, 2)), -1, 2)
    (decoded,), _ = tf.nn.ctc_beam_search_decoder(shifted, lengths, beam_width=8)
    found = tf.sparse.to_dense(decoded, default_value=-1).numpy() + 1
    received = predicting.predict([features, lengths], batch_size=2, verbose=0)
    assert received.shape == (BATCH, TIME)
    np.testing.assert_array_equal(received[:, : found.shape[1]], found)
    assert not received[:, found.shape[1] :].any()


def test_other_arguments_are_refused(kit: Kit) -> None:
    data, length = np.zeros((TIME, BATCH, CLASSES), np.float32), np.full(BATCH, TIME, np.int32)
    with pytest.raises(TypeError, match="data_lengths"):
        kit.keras.ipu.layers.CTCInferenceLayer()(data, length, data_lengths=length)


@both_frameworks
@pytest.mark.parametrize("scope", SCOPES)
def test_a_loss_of_tensorflow(kit: Kit, scope: str) -> None:
    """TensorFlow's loop for `ctc_loss` calls functions of version 1 within its body."""
    generator = np.random.default_rng(3)
    x = generator.normal(size=(BATCH, TIME, 6)).astype(np.float32)
    y = generator.integers(1, CLASSES, (BATCH, LABELS)).astype(np.int32)

    def loss(y_true: Any, y_pred: Any) -> Any:
        lengths = tf.fill([tf.shape(y_pred)[0]], TIME), tf.fill([tf.shape(y_pred)[0]], LABELS)
        labels = tf.cast(y_true, tf.int32)
        return tf.nn.ctc_loss(labels, y_pred, lengths[1], lengths[0], logits_time_major=False, blank_index=0)

    def losses(scope: str | None) -> list[Any]:
        kit.keras.utils.set_random_seed(2)
        with nullcontext() if scope is None else SCOPES[scope]():
            model = kit.keras.Sequential([kit.keras.layers.Input((TIME, 6)), kit.keras.layers.Dense(CLASSES)])
            model.compile(kit.keras.optimizers.SGD(0.1), kit.keras.losses.CTC() if kit.is_keras3 else loss)
            own = kit.keras.models.clone_model(model)
            own.set_weights(model.get_weights())
            own.compile(kit.keras.optimizers.SGD(0.1), loss)
        return [
            each.fit(x, y, batch_size=2, epochs=2, shuffle=False, verbose=0).history["loss"] for each in (model, own)
        ]

    np.testing.assert_allclose(losses(scope), losses(None), rtol=1e-4)


@tf_keras_only
@pytest.mark.parametrize("way", ["loss", "layer"])
def test_the_batch_cost_of_tf_keras(kit: Kit, way: str) -> None:
    """Programs for speech give it as a loss, those for text in images call it in a layer, with padded labels."""
    keras, generator = kit.keras, np.random.default_rng(6)
    x = generator.normal(size=(2 * BATCH, TIME, 6)).astype(np.float32)
    y = generator.integers(0, CLASSES - 1, (2 * BATCH, LABELS)).astype(np.float32)
    y[::3, 1:] = 99
    lengths = generator.integers(1, LABELS + 1, (2 * BATCH, 1)).astype(np.int64)

    def cost(labels: Any, predictions: Any, label_lengths: Any) -> Any:
        steps = tf.fill([tf.shape(labels)[0], 1], tf.shape(predictions)[1])
        return keras.backend.ctc_batch_cost(labels, predictions, steps, label_lengths)

    class Endpoint(keras.layers.Layer):
        def call(self, labels: Any, predictions: Any, label_lengths: Any) -> Any:
            self.add_loss(cost(labels, predictions, label_lengths))
            return predictions

    def build() -> Any:
        features = keras.Input((TIME, 6))
        outputs = keras.layers.Dense(CLASSES, "softmax")(features)
        if way == "loss":
            return keras.Model(features, outputs)
        labels, label_lengths = keras.Input((LABELS,)), keras.Input((1,), dtype="int64")
        return keras.Model([features, labels, label_lengths], Endpoint()(labels, outputs, label_lengths))

    def program(model: Any) -> Any:
        data = {"x": x, "y": y} if way == "loss" else {"x": [x, y, lengths]}
        history = model.fit(**data, batch_size=BATCH, epochs=2, shuffle=False, verbose=0).history["loss"]
        return [history, model.predict(data["x"], verbose=0)]

    def whole(labels: Any, predictions: Any) -> Any:
        return cost(labels, predictions, tf.fill([tf.shape(labels)[0], 1], LABELS))

    loss = whole if way == "loss" else None
    kit.assert_same(program, build, optimizer=lambda: keras.optimizers.SGD(0.1), loss=loss, metrics=[])


@tf_keras_only
@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, CLASSES, 1], "Saw a non-null label"),
        ([0, -1, 1], "All labels must be nonnegative"),
        ([0, 1, 0, 1, 0, 1, 0, 1], "Not enough time"),
    ],
)
def test_labels_that_the_batch_cost_does_not_take(kit: Kit, labels: list[int], message: str) -> None:
    def cost(y_true: Any, y_pred: Any) -> Any:
        steps, counts = (tf.fill([BATCH, 1], tf.shape(each)[1]) for each in (y_pred, y_true))
        return kit.keras.backend.ctc_batch_cost(y_true, y_pred, steps, counts)

    x, y = np.ones((BATCH, TIME, 6), np.float32), np.array([[0] * len(labels)] * (BATCH - 1) + [labels])
    layers = [kit.keras.Input((TIME, 6)), kit.keras.layers.Dense(CLASSES, "softmax")]
    plain = kit.keras.Sequential(layers)
    with accelerate() as acceleration:
        model = kit.keras.Sequential(layers)
    for each in (plain, model):
        each.compile("sgd", cost)
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            each.fit(x, y, batch_size=BATCH, verbose=0)
    assert not acceleration.fallbacks
