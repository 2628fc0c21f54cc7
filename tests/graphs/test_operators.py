"""Operators with tf.gradients in programs of TensorFlow 1."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from tensorflow.python import ipu

v1 = tf.compat.v1
RANDOM = np.random.default_rng(1)
X, LOGITS = RANDOM.normal(size=(4, 6)), RANDOM.normal(size=(1, 4, 5))


def model(x: tf.Tensor, logits: tf.Tensor) -> dict[str, list[tf.Tensor]]:
    table = v1.get_variable("table", [11, 6], initializer=v1.ones_initializer())
    biases = v1.get_variable("biases", [11], initializer=v1.zeros_initializer())
    labels = [[1], [2], [3], [4]]
    losses = ipu.nn_ops.ctc_loss_v2(labels, logits, [1] * 4, [1] * 4, 0)
    dropped = ipu.rand_ops.dropout(x, 0.5, [4, 1])
    product = ipu.math_ops.serialized_matmul(x, table, 2, "a_columns", transpose_b=True)
    rows = ipu.embedding_ops.embedding_lookup(table, [3, 3], serialization_factor=11)
    sampled = ipu.nn_ops.sampled_softmax_loss(table, biases, labels, x, 11, 11)
    return {
        "losses": [losses, *v1.gradients(losses, logits)],
        "dropped": [dropped, *v1.gradients(dropped, x)],
        "product": [product, *v1.gradients(product, x)],
        "rows": [rows, *v1.gradients(rows, table)],
        "norm": [ipu.normalization_ops.group_norm(x, 3)],
        "sampled": [sampled, *v1.gradients(sampled, biases)],
        "decoded": list(ipu.nn_ops.ctc_beam_search_decoder(logits, [1] * 4, 3, 2, 0)),
        "counts": [ipu.statistics_ops.histogram(x[0], [-1.0, 1.0])],
        "reduced": list(ipu.within_replica_ops.all_reduce([x[0], x[1]])),
    }


def test_gradients_in_graphs() -> None:
    with tf.Graph().as_default():
        placeholders = [v1.placeholder(tf.float32, each.shape) for each in (X, LOGITS)]
        results = ipu.ipu_compiler.compile(model, placeholders)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            received = session.run(results, dict(zip(placeholders, (X, LOGITS), strict=True)))
    found = received[0] if isinstance(received, list) else received
    probabilities = np.exp(LOGITS[0]) / np.exp(LOGITS[0]).sum(1, keepdims=True)
    rows = np.arange(4)
    np.testing.assert_allclose(found["losses"][0], -np.log(probabilities[rows, rows + 1]), rtol=1e-5)
    np.testing.assert_allclose(found["losses"][1][0], probabilities - np.eye(5)[1:], atol=1e-5)
    np.testing.assert_allclose(found["dropped"][0], X * found["dropped"][1], rtol=1e-5)
    np.testing.assert_allclose(found["product"][0], np.repeat(X.sum(1, keepdims=True), 11, 1), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(found["product"][1], np.full((4, 6), 11))
    np.testing.assert_array_equal(found["rows"][0], np.ones((2, 6)))
    np.testing.assert_array_equal(found["rows"][1], 2.0 * (np.arange(11) == 3)[:, None] * np.ones(6))
    np.testing.assert_allclose(found["norm"][0].reshape(4, 2, 3).mean(1), 0, atol=1e-5)
    np.testing.assert_allclose(found["sampled"][1].sum(), 0, atol=1e-5)
    np.testing.assert_allclose(found["decoded"][0], -np.log(np.sort(probabilities)[:, :-3:-1]), rtol=1e-5)
    np.testing.assert_array_equal(found["counts"][0], np.histogram(X[0], [-np.inf, -1, 1, np.inf])[0])
    np.testing.assert_allclose(found["reduced"], [X[0] + X[1]] * 2, rtol=1e-5)
