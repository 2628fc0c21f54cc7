"""Automatic sharding: which operations are on which shard, and programs that train as without it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compiler.xla import xla_data_pb2
from tensorflow.python import ipu

v1 = tf.compat.v1
X = np.random.default_rng(3).normal(size=(4, 6)).astype(np.float32)


def shard_of(operation: tf.Operation) -> int | None:
    if not ipu.sharding.has_attr(operation, "_XlaSharding"):
        return None
    (shard,) = xla_data_pb2.OpSharding.FromString(operation.get_attr("_XlaSharding")).tile_assignment_devices
    return shard


def layers(x: tf.Tensor) -> tuple[list[tf.Tensor], tf.Tensor]:
    results = []
    for number in range(4):
        weights = v1.get_variable(f"w{number}", [6, 6], use_resource=True)
        x = tf.tanh(x @ weights)
        results.append(x)
    return results, tf.reduce_mean(x * x)


def sharded(x: Any, optimizer: Any, shards: int | None, **arguments: Any) -> tuple[tf.Tensor, list[Any]]:
    results, loss = layers(x)
    train = optimizer.minimize(loss)
    if shards:
        ipu.autoshard.automatic_sharding(shards, x, loss, **arguments)
    with tf.control_dependencies([train]):
        return tf.identity(loss), [shard_of(each.op) for each in results]


def trained(shards: int | None) -> tuple[list[float], list[Any]]:
    found: list[Any] = []

    def net(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        optimizer = ipu.optimizers.ShardedOptimizer(v1.train.GradientDescentOptimizer(0.5))
        loss, places = sharded(x, optimizer, shards)
        found.extend(places)
        return loss, ipu.cross_replica_ops.cross_replica_sum(tf.ones([]))

    with tf.Graph().as_default(), v1.Session() as session:
        v1.set_random_seed(1)
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            step = ipu.ipu_compiler.compile(net, [X])
        session.run(v1.global_variables_initializer())
        losses = [session.run(step) for _ in range(3)]
    return [loss for loss, _ in losses], [*found, *(replicas for _, replicas in losses)]


def test_programs_train_on_shards() -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 4
    config.configure_ipu_system()
    plain, alone = trained(None)
    losses, found = trained(4)
    assert alone == [None] * 4 + [4.0] * 3
    assert found == [0, 1, 2, 3] + [1.0] * 3  # four shards leave one replica of four IPUs
    assert losses[2] < losses[0]
    np.testing.assert_array_equal(losses, plain)


def test_edges_that_stay_together() -> None:
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, [4, 6])
        results, loss = layers(x)
        first, second = (results[number].op.name for number in (0, 1))
        inside = {first, second, *(tensor.op.name for tensor in results[1].op.inputs)}
        ipu.autoshard.automatic_sharding(2, x, loss, lambda edge: set(edge) <= inside)
        assert [shard_of(each.op) for each in results[:2]] in ([0, 0], [1, 1])
        assert shard_of(loss.op) == 1
        for count, message in ((0, "at least 1"), (100, "Nearest")):
            with pytest.raises(ValueError, match=message):
                ipu.autoshard.automatic_sharding(count, x, loss)
        with pytest.raises(ValueError, match="depends on the input"):
            ipu.autoshard.automatic_sharding(2, loss, x)
