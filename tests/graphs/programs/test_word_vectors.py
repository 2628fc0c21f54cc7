"""Word vectors with negative samples, whose optimizers update the rows of words that a batch names, some twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from tests.graphs.programs.on_host import check, trained_on_host, variables_of, weights, zeros

v1 = tf.compat.v1
WORDS, SIZE, SAMPLES, NEGATIVE = 12, 5, 6, 3
RANDOM = np.random.default_rng(0)
BATCHES = [
    [RANDOM.integers(0, WORDS, shape).astype(np.int32) for shape in (SAMPLES, SAMPLES, (SAMPLES, NEGATIVE))]
    for _ in range(4)
]
OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "Adagrad": lambda: v1.train.AdagradOptimizer(0.5),
    "Nesterov": lambda: v1.train.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
    "Adadelta": lambda: v1.train.AdadeltaOptimizer(2.0),
    "Ftrl": lambda: v1.train.FtrlOptimizer(0.2, l1_regularization_strength=0.01, l2_regularization_strength=0.02),
    "Ftrl with shrinkage": lambda: v1.train.FtrlOptimizer(0.2, l2_shrinkage_regularization_strength=0.1),
    "ProximalAdagrad": lambda: v1.train.ProximalAdagradOptimizer(0.3, 0.1, 0.02, 0.1),
    "ProximalGradientDescent": lambda: v1.train.ProximalGradientDescentOptimizer(0.3, 0.1, 0.2),
    "AdagradDA": lambda: v1.train.AdagradDAOptimizer(
        0.3, v1.train.get_or_create_global_step(), l1_regularization_strength=0.01, l2_regularization_strength=0.1
    ),
    "RMSProp": lambda: v1.train.RMSPropOptimizer(0.05, momentum=0.5, centered=True),
}


def entropy(word: tf.Tensor, context: tf.Tensor, others: tf.Tensor) -> tf.Tensor:
    with v1.variable_scope("", reuse=v1.AUTO_REUSE):
        vectors, outputs = weights("vectors", [WORDS, SIZE]), weights("outputs", [WORDS, SIZE], 1)
        bias = zeros("bias", [WORDS])
    vector = tf.nn.embedding_lookup(vectors, word)
    positive = tf.reduce_sum(vector * tf.nn.embedding_lookup(outputs, context), 1) + tf.gather(bias, context)
    negative = tf.einsum("sv,snv->sn", vector, tf.nn.embedding_lookup(outputs, others)) + tf.gather(bias, others)
    return tf.reduce_mean(tf.nn.softplus(-positive) + tf.reduce_sum(tf.nn.softplus(negative), 1))


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_word_vectors(name: str) -> None:
    fed = [v1.placeholder(array.dtype, [None, *array.shape[1:]]) for array in BATCHES[0]]

    def training_step(*batch: tf.Tensor) -> Any:
        loss = entropy(*batch)
        return loss, OPTIMIZERS[name]().minimize(loss, global_step=v1.train.get_or_create_global_step())

    with ipu.scopes.ipu_scope("/device:IPU:0"):
        (loss,) = ipu.ipu_compiler.compile(training_step, fed)
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        losses = [session.run(loss, dict(zip(fed, batch, strict=True))) for batch in BATCHES]
        ours = variables_of(session)
    theirs, expected = trained_on_host(entropy, OPTIMIZERS[name], BATCHES)
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    check(ours, theirs, 1e-3)
