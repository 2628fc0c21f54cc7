"""TensorFlow's own sampled losses and samplers of candidates in functions that run on the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from engine.errors import UnsupportedOperation
from tests.collectives.running import OnReplicas, on_replicas
from tests.operators.comparing import check

v1 = tf.compat.v1
RANDOM = np.random.default_rng(6)
WEIGHTS, BIASES, INPUTS = RANDOM.normal(size=(11, 3)), RANDOM.normal(size=11), RANDOM.normal(size=(5, 3))
LABELS = RANDOM.integers(0, 11, (5, 2))
HIT = [0, 3, 7, int(LABELS[0, 0]), int(LABELS[3, 1])]
SAMPLED = (np.array(HIT), np.full((5, 2), 0.3, np.float32), np.float32([0.9, 0.5, 0.2, 0.1, 0.4]))
PROBABILITIES = {
    "uniform_candidate_sampler": lambda c: np.full(np.shape(c), 1 / 11),
    "log_uniform_candidate_sampler": lambda c: np.log((c + 2) / (c + 1)) / np.log(12),
}


@pytest.mark.parametrize("removes", [False, True])
@pytest.mark.parametrize("loss", [tf.nn.nce_loss, tf.nn.sampled_softmax_loss])
def test_losses_of_given_candidates(loss: Callable[..., Any], removes: bool) -> None:
    """Candidates are targets of one row, of two rows, or of no row."""

    def computed(weights: tf.Tensor, biases: tf.Tensor, inputs: tf.Tensor) -> tf.Tensor:
        sampled = tuple(tf.constant(each) for each in SAMPLED)
        return loss(weights, biases, LABELS, inputs, 5, 11, 2, sampled, remove_accidental_hits=removes)

    def definition(weights: tf.Tensor, biases: tf.Tensor, inputs: tf.Tensor) -> tf.Tensor:
        sampled = tuple(each.astype(np.float64) if each.dtype == np.float32 else each for each in SAMPLED)
        return loss(weights, biases, LABELS, inputs, 5, 11, 2, sampled, remove_accidental_hits=removes)

    check(computed, definition, WEIGHTS, BIASES, INPUTS)


def test_accidental_hits_are_in_tensorflows_order() -> None:
    def hits() -> Any:
        return v1.nn.compute_accidental_hits(LABELS, np.array([*HIT, 3], np.int64), 2)

    for received, expected in zip(on_replicas(hits, 1), hits(), strict=True):
        np.testing.assert_array_equal(received, expected)
        assert received.dtype == expected.dtype


@pytest.mark.parametrize("unique", [False, True])
@pytest.mark.parametrize("sampler", sorted(PROBABILITIES))
def test_samplers_draw_as_tensorflows(sampler: str, unique: bool) -> None:
    probability = PROBABILITIES[sampler]

    def check_counts(candidates: np.ndarray, true: np.ndarray, counts: np.ndarray) -> None:
        assert not unique or len(set(candidates)) == 5
        rarest = np.argmin(probability(candidates))
        tries = round(float(np.log1p(-counts[rarest]) / np.log1p(-probability(candidates)[rarest]))) if unique else 5
        for classes, expected in ((candidates, counts), (LABELS, true)):
            p = probability(classes)
            # The mean number of a class's draws if no candidate was drawn twice, else the probability of drawing it.
            right = 5 * p if np.allclose(counts, 5 * probability(candidates)) else -np.expm1(tries * np.log1p(-p))
            np.testing.assert_allclose(expected, right, rtol=1e-4)

    run = OnReplicas(lambda: getattr(tf.random, sampler)(LABELS, 2, 5, unique, 11), 1)
    seen, theirs = np.zeros(11), np.zeros(11)
    calls = 300
    for _ in range(calls):
        drawn = run()
        assert drawn[0].dtype == np.int64
        of_tensorflow = [each.numpy() for each in getattr(tf.random, sampler)(LABELS, 2, 5, unique, 11)]
        check_counts(*drawn)
        check_counts(*of_tensorflow)
        np.add.at(seen, drawn[0], 1)
        np.add.at(theirs, of_tensorflow[0], 1)
    np.testing.assert_allclose(seen / calls, theirs / calls, atol=0.3)


def test_all_classes_are_candidates_once() -> None:
    candidates, true, counts = on_replicas(lambda: tf.random.all_candidate_sampler(LABELS, 2, 11, True), 1)
    assert candidates.tolist() == list(range(11)) and set(counts) == {1.0} and true.shape == (5, 2)


def test_samplers_with_counts_or_a_vocabulary_are_refused() -> None:
    for draw, name in (
        (lambda: tf.random.learned_unigram_candidate_sampler(LABELS, 2, 5, True, 11), "learned_unigram"),
        (lambda: tf.random.fixed_unigram_candidate_sampler(LABELS, 2, 5, True, 11, unigrams=[1.0] * 11), "fixed_uni"),
    ):
        with pytest.raises(UnsupportedOperation, match=f"Received: tf.random.{name}.*sampled_values"):
            on_replicas(draw, 1)
    with pytest.raises(ValueError, match="num_sampled from 1 to the 11 classes. Received: 12. Nearest: 11"):
        on_replicas(lambda: tf.random.uniform_candidate_sampler(LABELS, 2, 12, True, 11), 1)


def test_word_vectors_of_a_graph() -> None:
    """Pairs of words that occur together: each is trained to predict its partner among sampled words."""
    words = np.arange(12, dtype=np.int32)
    partners = (words ^ 1)[:, None]
    with tf.Graph().as_default(), v1.Session() as session:
        fed = v1.placeholder(tf.int32, [12])

        def training(inputs: tf.Tensor) -> Any:
            vectors = v1.get_variable("vectors", [12, 8], use_resource=True)
            weights = v1.get_variable("weights", initializer=tf.zeros([12, 8]), use_resource=True)
            biases = v1.get_variable("biases", initializer=tf.zeros([12]), use_resource=True)
            chosen = tf.nn.embedding_lookup(vectors, inputs)
            losses = v1.nn.nce_loss(weights, biases, partners, chosen, 6, 12)
            losses += v1.nn.sampled_softmax_loss(weights, biases, partners, chosen, 6, 12)
            loss = tf.reduce_mean(losses)
            scores = tf.matmul(chosen, weights, transpose_b=True)
            return loss, scores, v1.train.AdamOptimizer(0.1).minimize(loss)

        with ipu.scopes.ipu_scope("/device:IPU:0"):
            fetched = ipu.ipu_compiler.compile(training, [fed])
        session.run(v1.global_variables_initializer())
        for _ in range(80):
            _, scores = session.run(fetched, {fed: words})
    assert (scores.argmax(1) == partners[:, 0]).mean() == 1
