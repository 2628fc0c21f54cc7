"""Training on replicas that accumulate gradients, and training of a model with layers on several IPUs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from tests.graphs.programs.on_host import check, configure, dataset, dense, trained_on_host, variables_of

v1 = tf.compat.v1
REPLICAS, ACCUMULATED, UPDATES = 2, 3, 4
X = np.random.default_rng(0).normal(size=[REPLICAS * ACCUMULATED * UPDATES, 4, 5]).astype(np.float32)
Y = np.sin(X.sum(-1, keepdims=True))


def error(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    return v1.losses.mean_squared_error(y, dense(tf.tanh(dense(x, 8, "hidden")), 1, "output"))


def merged(updates: int) -> list[Any]:
    """The micro-batches of each update, merged into one batch."""
    return list(zip(X.reshape(updates, -1, 5), Y.reshape(updates, -1, 1), strict=True))


def after(program: Any, outfeed: Any, infeed: Any) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    losses = outfeed.dequeue()
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        session.run(infeed.initializer)
        session.run(program)
        return session.run(losses), variables_of(session)


@pytest.mark.parametrize("combined", [False, True])
def test_replicated_training_with_accumulation(combined: bool) -> None:
    configure(REPLICAS)
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset(list(zip(X, Y, strict=True))))
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    mean = ipu.gradient_accumulation.GradientAccumulationReductionMethod.MEAN
    optimizers = ipu.optimizers

    def body(x: tf.Tensor, y: tf.Tensor) -> Any:
        loss, adam = error(x, y), v1.train.AdamOptimizer(0.02)
        if combined:
            optimizer = optimizers.CrossReplicaGradientAccumulationOptimizerV2(adam, ACCUMULATED, reduction_method=mean)
        else:
            inner = optimizers.CrossReplicaOptimizer(adam)
            optimizer = optimizers.GradientAccumulationOptimizerV2(inner, ACCUMULATED, reduction_method=mean)
        return optimizer.minimize(loss), outfeed.enqueue(loss)

    def net() -> Any:
        return ipu.loops.repeat(ACCUMULATED * UPDATES, body, infeed_queue=infeed)

    with ipu.scopes.ipu_scope("/device:IPU:0"):
        program = ipu.ipu_compiler.compile(net)
    losses, ours = after(program, outfeed, infeed)
    theirs, expected = trained_on_host(error, lambda: v1.train.AdamOptimizer(0.02), merged(UPDATES))
    theirs.pop("global_step")
    assert losses.shape == (ACCUMULATED * UPDATES, REPLICAS)
    np.testing.assert_allclose(losses.reshape(UPDATES, -1).mean(1), expected, rtol=1e-4)
    check(ours, theirs, 1e-3)


@pytest.mark.parametrize("automatic", [False, True])
def test_a_sharded_model(automatic: bool) -> None:
    configure(2)
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset(list(zip(X, Y, strict=True))))
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def sharded(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        with ipu.scopes.ipu_shard(0):
            hidden = tf.tanh(dense(x, 8, "hidden"))
        with ipu.scopes.ipu_shard(1):
            return v1.losses.mean_squared_error(y, dense(hidden, 1, "output"))

    def body(x: tf.Tensor, y: tf.Tensor) -> Any:
        loss = error(x, y) if automatic else sharded(x, y)
        optimizer = ipu.sharded_optimizer.ShardedOptimizer(v1.train.RMSPropOptimizer(0.01))
        train = optimizer.minimize(loss)
        if automatic:
            ipu.autoshard.automatic_sharding(2, x, loss)
        return train, outfeed.enqueue(loss)

    with ipu.scopes.ipu_scope("/device:IPU:0"):
        program = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(len(X), body, infeed_queue=infeed))
    losses, ours = after(program, outfeed, infeed)
    theirs, expected = trained_on_host(error, lambda: v1.train.RMSPropOptimizer(0.01), merged(len(X)))
    theirs.pop("global_step")
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    check(ours, theirs, 1e-3)
