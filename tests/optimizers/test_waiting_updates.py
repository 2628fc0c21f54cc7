"""Iterations that only accumulate run no part of an update, not even copies of weights."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from tests.collectives.running import OnReplicas

SIZE = 300


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("plain", [tf.compat.v1.train.AdamOptimizer, tf.compat.v1.train.AdagradOptimizer])
def test_only_accumulators_are_written_between_updates(replicas: int, plain: type) -> None:
    weights = tf.Variable(np.eye(SIZE, dtype=np.float32))
    optimizer = ipu.optimizers.CrossReplicaGradientAccumulationOptimizerV2(plain(0.01), 5)

    def iteration(step):
        index = tf.cast(ipu.replication_ops.replication_index() + step, tf.float32)
        loss = tf.reduce_mean(tf.square((tf.ones([1, SIZE]) * index) @ weights))
        with tf.control_dependencies([optimizer.minimize(loss, var_list=[weights])]):
            return step + 1

    def function():
        return tf.while_loop(lambda step: step < 10, lambda step: [iteration(step)], [0])

    program = OnReplicas(function, replicas).program.engine_program
    (loop,) = [r for r in program.regions if r.repeats]
    branches = [r for r in program.regions if not r.repeats and loop.begin <= r.begin and r.end <= loop.end]
    branches = [r for r in branches if (r.begin, r.end) != (loop.begin, loop.end)]
    update = max(branches, key=lambda r: r.end - r.begin)
    large = [
        at
        for at in range(loop.begin, loop.end)
        for span in program.compute_sets[at].writes
        if span.buffer.shape.elements >= SIZE * SIZE
    ]
    inside = [at for at in large if update.begin <= at < update.end]
    outside = [at for at in large if not update.begin <= at < update.end]
    # Only the accumulators may be updated: the gradient's and each replica's, or both at once.
    assert inside
    assert len(outside) <= 2 * replicas
    copies = [program.compute_sets[at].name for at in outside if program.compute_sets[at].name.endswith(".update")]
    assert not copies
