"""Two programs of one graph, one that trains and one that evaluates, share their variables."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python import ipu

from tests.graphs.programs.on_host import Batch, check, dataset, dense, trained_on_host, variables_of

v1 = tf.compat.v1
X = np.random.default_rng(0).normal(size=[30, 4, 3]).astype(np.float32)
Y = (X.prod(-1) > 0).astype(np.int32)
TRAINED: list[Batch] = list(zip(X[:20], Y[:20], strict=True))
EVALUATED: list[Batch] = list(zip(X[20:], Y[20:], strict=True))


def logits_of(x: tf.Tensor) -> tf.Tensor:
    with v1.variable_scope("model", reuse=v1.AUTO_REUSE, use_resource=True):
        return dense(tf.nn.relu(dense(x, 16, "hidden")), 2, "output")


def entropy(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits_of(x))
    return tf.reduce_mean(losses) + 0.01 * tf.add_n([tf.nn.l2_loss(v) for v in v1.trainable_variables("model")])


def host_losses(values: dict[str, np.ndarray]) -> list[float]:
    """The losses of the evaluated batches that TensorFlow computes with these variables."""
    with tf.Graph().as_default():
        x, y = v1.placeholder(tf.float32, [4, 3]), v1.placeholder(tf.int32, [4])
        loss = entropy(x, y)
        with v1.Session() as session:
            for variable in v1.global_variables():
                variable.load(values[variable.op.name], session)
            return [session.run(loss, {x: bx, y: by}) for bx, by in EVALUATED]


def test_training_and_evaluation_share_variables() -> None:
    infeeds = [ipu.ipu_infeed_queue.IPUInfeedQueue(dataset(batches)) for batches in (TRAINED, EVALUATED)]
    outfeeds = [ipu.ipu_outfeed_queue.IPUOutfeedQueue() for _ in infeeds]

    def training_step(x: tf.Tensor, y: tf.Tensor) -> Any:
        loss = entropy(x, y)
        return outfeeds[0].enqueue(loss), v1.train.AdagradOptimizer(0.1).minimize(loss)

    def evaluation(x: tf.Tensor, y: tf.Tensor) -> Any:
        return outfeeds[1].enqueue((entropy(x, y), tf.argmax(logits_of(x), 1, tf.int32)))

    with ipu.scopes.ipu_scope("/device:IPU:0"):
        train = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(10, training_step, [], infeeds[0]))
        evaluate = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(len(EVALUATED), evaluation, [], infeeds[1]))
    losses, results = (outfeed.dequeue() for outfeed in outfeeds)
    with v1.Session() as session:
        session.run([v1.global_variables_initializer(), *(infeed.initializer for infeed in infeeds)])
        seen = []
        for _ in range(2):
            session.run(train)
            session.run(evaluate)
            seen.append((*session.run(results), variables_of(session)))
        trained = session.run(losses)
    theirs, expected = trained_on_host(entropy, lambda: v1.train.AdagradOptimizer(0.1), TRAINED)
    theirs.pop("global_step")
    np.testing.assert_allclose(trained, expected, rtol=1e-4)
    check(seen[1][2], theirs)
    for evaluated, classes, variables in seen:
        np.testing.assert_allclose(evaluated, host_losses(variables), rtol=1e-4)
        assert classes.shape == (len(EVALUATED), 4)
    assert seen[1][0].mean() != seen[0][0].mean()
