"""Accumulating optimizers can offload and shard their state: the function's cost report shows it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from engine.profile.program_estimate import Estimate
from ipu._internal.compiler.calling import program_of_function
from ipu._internal.profiling.estimates import estimate_of

train = tf.compat.v1.train
WIDTH, ITERATIONS, BATCHES = 32, 8, 4
SLOT = WIDTH * WIDTH * 4


def trained(optimizer: Any, replicas: int = 1, connection: str = "ALWAYS") -> tuple[Estimate, list[np.ndarray]]:
    """The estimate of a loop with two updates of two weights, and the weights afterwards."""
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = replicas
    config.device_connection.type = ipu.config.DeviceConnectionType[connection]
    config.configure_ipu_system()
    strategy = ipu.ipu_strategy.IPUStrategy()
    with strategy.scope():
        weights = [tf.Variable(np.full((WIDTH, WIDTH), 0.01 * k, np.float32), name=f"w{k}") for k in (1, 2)]

        def body(x: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(tf.matmul(tf.tanh(tf.matmul(x, weights[0])), weights[1])))
            pairs = zip(tape.gradient(loss, weights), weights, strict=True)
            with tf.control_dependencies([optimizer.apply_gradients(pairs)]):
                return x * 1.0

        @tf.function(jit_compile=True)
        def program() -> Any:
            return ipu.loops.repeat(ITERATIONS, body, [tf.ones((4, WIDTH))])

        strategy.run(program)
    return estimate_of(program_of_function(program)), [weight.numpy() for weight in weights]


def momentum(**options: Any) -> Any:
    return ipu.optimizers.GradientAccumulationOptimizerV2(train.MomentumOptimizer(0.1, 0.9), BATCHES, **options)


def test_state_is_in_remote_memory_but_for_its_updates() -> None:
    default, weights = trained(momentum())
    kept, same = trained(momentum(offload_weight_update_variables=False))
    for one, other in zip(weights, same, strict=True):
        np.testing.assert_array_equal(one, other)
    assert (default.remote.bytes, kept.remote.bytes) == ({"optimizer state variables": 2 * SLOT}, {})
    # Each of the two updates loads both slots, and stores them again.
    assert default.remote.moved_bytes == (ITERATIONS // BATCHES) * 2 * 2 * SLOT
    assert default.exchange - kept.exchange == default.remote.cycles(default.target) > 0
    assert kept.tiles.always_live_bytes.sum() - default.tiles.always_live_bytes.sum() == 2 * SLOT
    slots = {t.name: t.always_live for t in default.liveness if " slot of " in t.name}
    assert slots == {"Momentum slot of w1": False, "Momentum slot of w2": False}
    sums = [t for t in default.liveness if t.name.startswith("sum of gradients of")]
    assert {t.name.rpartition("/")[2] for t in sums} == {"sum of gradients of w1", "sum of gradients of w2"}
    assert all(t.always_live for t in sums)


def test_adam_has_two_slots_of_each_variable() -> None:
    found, _ = trained(ipu.optimizers.GradientAccumulationOptimizerV2(train.AdamOptimizer(), BATCHES))
    assert found.remote.bytes == {"optimizer state variables": 4 * SLOT}


def test_replicas_share_the_state_where_it_is_sharded() -> None:
    optimizer = ipu.optimizers.CrossReplicaGradientAccumulationOptimizerV2(
        train.MomentumOptimizer(0.1, 0.9),
        BATCHES,
        offload_weight_update_variables=True,
        replicated_optimizer_state_sharding=None,
    )
    found, _ = trained(optimizer, replicas=2)
    assert found.remote.bytes == {"optimizer state variables": SLOT}
    assert found.remote.gathered_bytes == found.remote.moved_bytes


def test_the_first_version_does_not_offload() -> None:
    plain = train.MomentumOptimizer(0.1, 0.9)
    assert trained(ipu.optimizers.GradientAccumulationOptimizer(plain, BATCHES))[0].remote.bytes == {}


def test_nothing_is_offloaded_without_remote_buffers() -> None:
    assert trained(momentum(offload_weight_update_variables=True), connection="ON_DEMAND")[0].remote.bytes == {}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"offload_weight_update_variables": "yes"}, "True, False or None. Received: 'yes'"),
        ({"offload_weight_update_variables": False, "replicated_optimizer_state_sharding": True}, "Leave one of"),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        momentum(**options)
