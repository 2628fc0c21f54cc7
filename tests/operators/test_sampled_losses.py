"""Losses over sampled classes against TensorFlow's, and the sampler."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from ipu._internal.compiler.candidate_sampling import log_uniform_candidates
from tests.collectives.running import OnReplicas, on_replicas
from tests.operators.comparing import check

RANDOM = np.random.default_rng(6)
WEIGHTS, BIASES, INPUTS = RANDOM.normal(size=(11, 3)), RANDOM.normal(size=11), RANDOM.normal(size=(5, 3))
LABELS = RANDOM.integers(0, 11, (5, 2))
SAMPLED = (np.array([0, 3, 7, int(LABELS[0, 0])]), np.full((5, 2), 0.3, np.float32), np.float32([0.9, 0.5, 0.2, 0.1]))


@pytest.mark.sample(2)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("name", ["nce_loss", "sampled_softmax_loss"])
def test_losses_of_given_candidates(name: str, dtype: Any) -> None:
    def loss(weights: tf.Tensor, biases: tf.Tensor, inputs: tf.Tensor) -> tf.Tensor:
        parts = tf.split(weights, [4, 7])
        return getattr(ipu.nn_ops, name)(parts, biases, LABELS, inputs, 4, 11, 2, SAMPLED)

    def definition(weights: tf.Tensor, biases: tf.Tensor, inputs: tf.Tensor) -> tf.Tensor:
        sampled = tuple(each.astype(np.float64) if each.dtype == np.float32 else each for each in SAMPLED)
        return getattr(tf.nn, name)(weights, biases, LABELS, inputs, 4, 11, 2, sampled)

    check(loss, definition, WEIGHTS, BIASES, INPUTS, dtype=dtype)


def test_the_sampler_draws_as_tensorflow_does() -> None:
    """Candidates differ from each other and between calls; each class is as often among them as among TensorFlow's."""
    run = OnReplicas(lambda: log_uniform_candidates(tf.constant(LABELS), 5, 11), 1)
    seen, tensorflows, tries = np.zeros(11), np.zeros(11), []
    calls = 400
    for _ in range(calls):
        candidates, true, counts = run()
        assert len(set(candidates)) == 5
        seen[candidates] += 1
        probability = np.log((candidates + 2) / (candidates + 1)) / np.log(12)
        # If no draw was repeated, TensorFlow's count of a candidate is the mean number of draws of its class.
        took = np.full(5, 5.0) if np.allclose(counts, 5 * probability) else np.log1p(-counts) / np.log1p(-probability)
        tries.append(took)
        np.testing.assert_allclose(tries[-1], round(tries[-1][0]), rtol=1e-3)
        np.testing.assert_allclose(true[LABELS == candidates[0]], counts[0], rtol=1e-5)
        theirs = tf.random.log_uniform_candidate_sampler(LABELS, 2, 5, True, 11)
        tensorflows[theirs.sampled_candidates.numpy()] += 1
    np.testing.assert_allclose(seen / calls, tensorflows / calls, atol=0.13)
    assert len({round(each[0]) for each in tries}) > 3


def test_losses_that_draw_train_a_classifier() -> None:
    weights, biases = tf.Variable(tf.zeros([11, 3])), tf.Variable(tf.zeros([11]))
    inputs, labels = np.float32(INPUTS), LABELS[:, :1]

    def step(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(ipu.nn_ops.sampled_softmax_loss(weights, biases, labels, x, 6, 11))
            loss += tf.reduce_mean(ipu.nn_ops.nce_loss(weights, biases, labels, x, 6, 11))
        for variable, gradient in zip((weights, biases), tape.gradient(loss, [weights, biases]), strict=True):
            variable.assign_sub(0.5 * gradient)
        return loss

    run = OnReplicas(step, 1, inputs)
    losses = [run(inputs) for _ in range(150)]
    assert np.mean(losses[-20:]) < 0.4 * np.mean(losses[:5])
    assert (np.argmax(inputs @ weights.numpy().T + biases.numpy(), 1) == labels[:, 0]).mean() >= 0.8


def test_numbers_that_cannot_be() -> None:
    weights, biases, inputs = map(np.float32, (WEIGHTS, BIASES, INPUTS))
    for arguments, message in (
        ((weights, biases, LABELS, inputs, 12, 11, 2), "num_sampled from 1 to the 11 classes"),
        ((weights, biases, LABELS, inputs, 4, 12, 2), r"weights \[12, dim\]"),
        ((weights, biases, LABELS, inputs[:1], 4, 11, 2), r"labels \[1, 2\]"),
        ((weights, biases, LABELS, inputs, 3, 11, 2, SAMPLED), "3 sampled candidates"),
    ):
        with pytest.raises(ValueError, match=message):
            ipu.nn_ops.nce_loss(*arguments)


def test_eager_calls() -> None:
    assert on_replicas(lambda: log_uniform_candidates(tf.constant(LABELS), 11, 11)[0], 1).sum() == 55
    arguments = (*map(np.float32, (WEIGHTS, BIASES)), LABELS, np.float32(INPUTS), 4, 11, 2)
    assert ipu.nn_ops.sampled_softmax_loss(*arguments, seed=3).shape == [5]
