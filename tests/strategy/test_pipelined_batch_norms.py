"""Batch normalisations over replicas in pipelines of functions, against TensorFlow on the batches of all replicas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from ipu.config import IPUConfig

v1 = tf.compat.v1
BATCH, REPLICAS, COUNT, UPDATES = 2, 2, 4, 2
X = np.random.default_rng(0).normal(1.0, 2.0, (BATCH * REPLICAS * COUNT * UPDATES, 3, 3, 2)).astype(np.float32)
Y = np.random.default_rng(1).normal(size=(len(X), 2)).astype(np.float32)


def first(x: Any, y: Any) -> Any:
    with v1.variable_scope("net", use_resource=True, reuse=v1.AUTO_REUSE):
        gain = v1.get_variable("gain", [2], initializer=v1.ones_initializer())
        offset = v1.get_variable("offset", [2], initializer=v1.zeros_initializer())
        return v1.nn.fused_batch_norm(tf.square(x), gain, offset, is_training=True)[0], y


def last(x: Any, y: Any) -> Any:
    with v1.variable_scope("net", use_resource=True, reuse=v1.AUTO_REUSE):
        kernel = v1.get_variable("kernel", [18, 2], initializer=v1.glorot_uniform_initializer(2))
        return tf.reduce_mean(tf.square(tf.matmul(tf.reshape(tf.tanh(x), [-1, 18]), kernel) - y))


def in_a_pipeline(recompute: bool, schedule: str) -> list[np.ndarray]:
    config = IPUConfig()
    config.auto_select_ipus = 2 * REPLICAS
    config.allow_recompute = recompute
    config.norms.experimental.distributed_batch_norm_replica_group_size = REPLICAS
    config.configure_ipu_system()
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(BATCH, drop_remainder=True)
    infeed, outfeed = ipu.ipu_infeed_queue.IPUInfeedQueue(data), ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def optimizer_function(loss: Any) -> Any:
        optimizer = ipu.optimizers.CrossReplicaOptimizer(v1.train.MomentumOptimizer(0.1, 0.9))
        return ipu.pipelining_ops.OptimizerFunctionOutput(optimizer, loss)

    def net() -> Any:
        return ipu.pipelining_ops.pipeline(
            [first, last],
            gradient_accumulation_count=COUNT,
            repeat_count=UPDATES,
            infeed_queue=infeed,
            outfeed_queue=outfeed,
            optimizer_function=optimizer_function,
            reduction_method="mean",
            pipeline_schedule=ipu.pipelining_ops.PipelineSchedule[schedule],
        )

    with ipu.scopes.ipu_scope("/device:IPU:0"):
        compiled = ipu.ipu_compiler.compile(net)
    losses = outfeed.dequeue()
    with v1.Session() as session:
        session.run([v1.global_variables_initializer(), infeed.initializer])
        session.run(compiled)
        return [np.mean(session.run(losses), -1).ravel(), *session.run(v1.trainable_variables("net"))]


def in_tensorflow() -> list[np.ndarray]:
    x, y = v1.placeholder(tf.float32, [None, 3, 3, 2]), v1.placeholder(tf.float32, [None, 2])
    loss = last(*first(x, y))
    variables = v1.trainable_variables()
    gradients = tf.gradients(loss, variables)
    mean = [v1.placeholder(g.dtype, g.shape) for g in gradients]
    apply = v1.train.MomentumOptimizer(0.1, 0.9).apply_gradients(zip(mean, variables, strict=True))
    losses, size = [], BATCH * REPLICAS
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        for update in range(UPDATES):
            found = []
            for start in range(update * COUNT * size, (update + 1) * COUNT * size, size):
                fed = {x: X[start : start + size], y: Y[start : start + size]}
                each, *gradient = session.run([loss, *gradients], fed)
                losses.append(each)
                found.append(gradient)
            sums = [np.mean(each, 0) for each in zip(*found, strict=True)]
            session.run(apply, dict(zip(mean, sums, strict=True)))
        return [np.array(losses), *session.run(variables)]


@pytest.mark.parametrize(("recompute", "schedule"), [(False, "Grouped"), (True, "Sequential")])
def test_statistics_are_those_of_all_replicas(recompute: bool, schedule: str) -> None:
    with tf.Graph().as_default():
        received = in_a_pipeline(recompute, schedule)
    with tf.Graph().as_default():
        expected = in_tensorflow()
    for one, other in zip(received, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
