"""The programs of sections 18.4 and 18.5: queues between a session's host and its programs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu
from tensorflow.python.eager import context

from tests.graphs.chapters.programs import run, v1

ITERATIONS, BATCH = 12, 4
ALL, LAST = ipu.ipu_outfeed_queue.IPUOutfeedMode.ALL, ipu.ipu_outfeed_queue.IPUOutfeedMode.LAST


def records() -> tf.data.Dataset:
    """Batches of one value for each record, of which `parse_record` makes an image of bytes and a label."""
    return tf.data.Dataset.range(3 * BATCH).batch(BATCH, drop_remainder=True).repeat()


def parse_record(value: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    image = tf.range(36) * 7 + tf.cast(value, tf.int32)[:, None] * 31
    return tf.reshape(tf.cast(image % 256, tf.float32), [BATCH, 6, 6, 1]), tf.one_hot(value % 3, 3)


def last_loss(first: list[np.ndarray], rate: float) -> float:
    """The last loss of the infeed's program, computed by TensorFlow on the CPU."""
    filters, weights, bias = variables = [tf.Variable(value) for value in first]
    for _, value in zip(range(ITERATIONS), records(), strict=False):
        features, labels = parse_record(value)
        with tf.GradientTape() as tape:
            y = tf.reshape(tf.nn.relu(tf.nn.conv2d(features, filters, 1, "VALID")), [BATCH, -1])
            loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels, y @ weights + bias))
        for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            variable.assign_sub(rate * gradient)
    return float(loss)


def test_infeed() -> None:
    v1.set_random_seed(1)
    names = run("18_4_infeed", records=records, parse_record=parse_record, ITERATIONS=ITERATIONS)
    assert names["infeed_queue"].dequeued
    variables = v1.trainable_variables("vs")
    with v1.Session() as session:  # has the same random values as the program's own session
        session.run(v1.global_variables_initializer())
        first = session.run(variables)
        session.run(names["infeed_queue"].deleter)
        with pytest.raises(tf.errors.FailedPreconditionError, match="initializ"):
            session.run(names["res"])
    with context.eager_mode():
        trained, untrained = last_loss(first, 0.000001), last_loss(first, 0.0)
    assert trained < 0.97 * untrained
    np.testing.assert_allclose(names["result"], [trained], rtol=1e-5)


@pytest.mark.parametrize("mode", [ALL, LAST])
@pytest.mark.parametrize(
    ("name", "iterations", "replicas"), [("one_tensor", 20, 2), ("tuple", 20, 1), ("dictionary", 40, 8)]
)
def test_dequeue(name: str, iterations: int, replicas: int, mode: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = replicas
    config.configure_ipu_system()
    queue = ipu.ipu_outfeed_queue.IPUOutfeedQueue
    monkeypatch.setattr(ipu.ipu_outfeed_queue, "IPUOutfeedQueue", lambda: queue(outfeed_mode=mode))
    names = run(f"18_5_dequeue_{name}")
    rows = np.arange(2, iterations + 2, dtype=np.float32)
    np.testing.assert_array_equal(names["result"], np.full((1, 4, 4), rows[-1]))
    outputs = np.broadcast_to(rows[:, None, None, None], (iterations, replicas, 4, 4))
    outputs, sums = (each[-1] if mode is LAST else each for each in (outputs, 16 * outputs[..., 0, 0]))
    if replicas == 1:
        axis = 0 if mode is LAST else 1
        outputs, sums = (np.squeeze(each, axis) for each in (outputs, sums))
    expected = {"one_tensor": outputs, "tuple": (outputs, sums), "dictionary": {"x": outputs, "y": sums}}[name]
    tf.nest.assert_same_structure(names["outfed"], expected)
    for received, each in zip(tf.nest.flatten(names["outfed"]), tf.nest.flatten(expected), strict=True):
        np.testing.assert_array_equal(received, each)


@pytest.mark.parametrize("name", ["one_tensor", "tuple", "dictionary"])
def test_enqueue(name: str) -> None:
    v = v1.placeholder(np.float32, [3])
    names = run(f"18_5_enqueue_{name}", v=v)
    dequeued = names["outfeed_queue"].dequeue()
    first = np.float32([1, -2, 0.5])
    with v1.Session() as session:
        (result,) = session.run(names["res"], {v: first})
        received = session.run(dequeued)
    np.testing.assert_array_equal(result, first + 20)
    values = first + np.arange(1, 21, dtype=np.float32)[:, None]
    expected = {
        "one_tensor": values,
        "tuple": (values, 2 * values),
        "dictionary": {"output_1": values, "output_2": 2 * values},
    }[name]
    tf.nest.assert_same_structure(received, expected)
    for each, other in zip(tf.nest.flatten(received), tf.nest.flatten(expected), strict=True):
        np.testing.assert_array_equal(each, other)
