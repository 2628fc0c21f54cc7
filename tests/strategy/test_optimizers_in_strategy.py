"""Optimizers and collectives in the programs of a strategy, with infeeds, outfeeds and replicas."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from engine.errors import ConfigurationError
from tests.keras.helpers import KITS, Kit
from tests.optimizers.training import data, loss_of, plainly_trained, weights

train = tf.compat.v1.train


def configured(replicas: int) -> ipu.ipu_strategy.IPUStrategy:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = replicas
    config.configure_ipu_system()
    return ipu.ipu_strategy.IPUStrategy()


@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_a_training_loop_with_queues(replicas: int) -> None:
    """Accumulation in ipu.loops.repeat, against plain TensorFlow on the same elements."""
    iterations, batches = 6, 3
    x, y = data(iterations, replicas)
    elements = tf.data.Dataset.from_tensor_slices((x.reshape(-1, *x.shape[2:]), y.reshape(-1, *y.shape[2:])))
    strategy = configured(replicas)
    with strategy.scope():
        variables = weights()
        infeed, outfeed = ipu.ipu_infeed_queue.IPUInfeedQueue(elements), ipu.ipu_outfeed_queue.IPUOutfeedQueue()
        optimizer = ipu.optimizers.CrossReplicaGradientAccumulationOptimizerV2(
            train.MomentumOptimizer(0.05, 0.9), batches
        )

        def body(x, y):
            loss = loss_of(variables, x, y)
            pairs = optimizer.compute_gradients(loss, variables)
            index = ipu.replication_ops.replication_index()
            with tf.control_dependencies([optimizer.apply_gradients(pairs)]):
                return outfeed.enqueue({"loss": loss, "replica": index})

        @tf.function(jit_compile=True)
        def program():
            ipu.loops.repeat(iterations, body, infeed_queue=infeed)

        _ = infeed.initializer
        strategy.run(program)
        rows = outfeed.dequeue()
    for one, other in zip(
        (v.numpy() for v in variables),
        plainly_trained(lambda: train.MomentumOptimizer(0.05, 0.9), iterations, replicas, batches),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6)
    lead = (iterations, replicas) if replicas > 1 else (iterations,)
    assert rows["loss"].shape == lead
    np.testing.assert_array_equal(rows["replica"], np.broadcast_to(np.arange(replicas), lead) if replicas > 1 else 0)
    first = np.float32([loss_of(weights(), x[0, r], y[0, r]) for r in range(replicas)])
    np.testing.assert_allclose(np.ravel(rows["loss"][0]), first, rtol=1e-5)
    # Weights do not change between two updates.
    for iteration in range(batches):
        expected = [loss_of(weights(), x[iteration, r], y[iteration, r]) for r in range(replicas)]
        np.testing.assert_allclose(np.ravel(rows["loss"][iteration]), expected, rtol=1e-5)


def test_other_numbers_of_iterations_are_refused() -> None:
    strategy = configured(1)
    with strategy.scope():
        variables = weights()
        optimizer = ipu.optimizers.GradientAccumulationOptimizerV2(train.GradientDescentOptimizer(0.1), 4)

        def body():
            loss = tf.reduce_sum(variables[0])
            return optimizer.minimize(loss, var_list=variables[:1])

        @tf.function(jit_compile=True)
        def program():
            ipu.loops.repeat(10, body)

        with pytest.raises(tf.errors.FailedPreconditionError, match="4 number of mini batches.*10 iterations"):
            strategy.run(program)


@pytest.mark.parametrize("replicas", [1, 4])
def test_collectives_in_a_function_of_a_strategy(replicas: int) -> None:
    strategy = configured(replicas)
    with strategy.scope():
        own = tf.Variable(tf.zeros([3]))

        @tf.function(jit_compile=True)
        def program(x):
            index = tf.cast(ipu.replication_ops.replication_index(), tf.float32)
            own.assign_add(x * index)
            total = ipu.cross_replica_ops.cross_replica_sum(own)
            return total, ipu.all_to_all_op.all_gather(own, replicas)

        x = tf.constant([1.0, 2.0, -3.0])
        for iteration in (1, 2):
            total, gathered = strategy.run(program, args=(x,))
            expected = np.stack([iteration * r * x.numpy() for r in range(replicas)])
            np.testing.assert_allclose(gathered, expected)
            np.testing.assert_allclose(total, expected.sum(0))
        np.testing.assert_array_equal(own.numpy(), np.zeros(3))


@pytest.mark.parametrize("replicas", [1, 2])
def test_other_optimizers_sum_over_replicas_in_the_scope_of_a_strategy(replicas: int) -> None:
    """All optimizers do so under tf.distribute: they sum accumulated gradients when they apply them."""
    x, y = data(4, replicas)
    strategy = configured(replicas)
    with strategy.scope():
        variables = weights()
        optimizer = ipu.optimizers.GradientAccumulationOptimizerV2(train.AdamOptimizer(0.01), 2)

        @tf.function(jit_compile=True)
        def program():
            place = ipu.replication_ops.replication_index()
            for iteration in tf.range(4):
                taken = [each[iteration][place] for each in (tf.constant(x), tf.constant(y))]
                optimizer.apply_gradients(optimizer.compute_gradients(loss_of(variables, *taken), variables))

        strategy.run(program)
    expected = plainly_trained(lambda: train.AdamOptimizer(0.01), 4, replicas, 2, scale=replicas)
    for one, other in zip((v.numpy() for v in variables), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6)


def scaling(kit: Kit, optimizer: Any) -> Any:
    """An optimizer with a dynamic loss scale of 4 at first."""
    kind = kit.keras.optimizers if kit.is_keras3 else kit.keras.mixed_precision
    return kind.LossScaleOptimizer(optimizer, initial_scale=4.0, dynamic_growth_steps=2)


def of_keras(kit: Kit, name: str) -> Any:
    """An optimizer that clips gradients or skips those that are not finite."""
    adam = kit.keras.optimizers.Adam
    if name == "LossScaleOptimizer":
        return scaling(kit, adam(0.1))
    return adam(0.1, epsilon=1e-2, **{name: 0.5})


@pytest.mark.parametrize("name", ["clipnorm", "global_clipnorm", "clipvalue", "LossScaleOptimizer"])
def test_keras_optimizers_take_sums_over_replicas(kit: Kit, name: str) -> None:
    """Sums are clipped, and are finite or not, against the optimizer in TensorFlow with the sums."""
    replicas, steps = 2, 4
    strategy = configured(replicas)
    gradients = np.random.default_rng(3).normal(size=(steps, replicas, 3)).astype(np.float32)
    if name == "LossScaleOptimizer":
        gradients[1, 1, 0], gradients[2, 0, 2] = np.inf, np.nan
    made = kit.keras.Variable if kit.is_keras3 else tf.Variable
    with strategy.scope():
        weight, optimizer = made(np.ones(3, np.float32)), of_keras(kit, name)
        optimizer.build([weight])

        @tf.function(jit_compile=True)
        def program() -> None:
            place = ipu.replication_ops.replication_index()
            for step in tf.range(steps):
                optimizer.apply_gradients([(tf.constant(gradients)[step][place], weight)])

        strategy.run(program)
    plain, expected = of_keras(kit, name), made(np.ones(3, np.float32))
    plain.build([expected])
    apply = tf.function(lambda gradient: plain.apply_gradients([(gradient, expected)]))
    for gradient in gradients.sum(1):
        apply(tf.constant(gradient))
    np.testing.assert_allclose(weight.numpy(), expected.numpy(), rtol=1e-5)
    assert int(optimizer.iterations.numpy()) == int(plain.iterations.numpy())


def test_a_loss_scaling_factor_is_that_of_all_replicas(kit: Kit) -> None:
    """A large gradient on the second replica halves the factor of both."""
    strategy = configured(2)
    made = kit.keras.Variable if kit.is_keras3 else tf.Variable
    optimizers = importlib.import_module(f"{kit.keras.__name__}.ipu").optimizers
    with strategy.scope():
        weight = made(np.ones(2, np.float32))
        optimizer = optimizers.ALSOptimizer(kit.keras.optimizers.SGD(0.1), 4, update_frequency=1)
        optimizer.build([weight])
        outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

        @tf.function(jit_compile=True)
        def program() -> None:
            place = tf.cast(ipu.replication_ops.replication_index(), tf.float32)
            optimizer.apply_gradients([(tf.stack([1.0, place * 3e5]), weight)])
            outfeed.enqueue(optimizer.loss_scaling_factor)

        strategy.run(program)
        np.testing.assert_array_equal(outfeed.dequeue(), [[2.0, 2.0]])


def trained_in_a_pipeline(kit: Kit, make: Callable[[], Any], scaled_by_stage: bool) -> np.ndarray:
    """The weight after four updates, each of four micro-batches."""
    made = kit.keras.Variable if kit.is_keras3 else tf.Variable
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    config.configure_ipu_system()
    strategy = ipu.ipu_strategy.IPUStrategy()
    with strategy.scope():
        weight, optimizer = made(np.ones(3, np.float32)), make()
        optimizer.build([weight])
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(ROWS))
        _ = infeed.initializer
        outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

        def last(product: tf.Tensor) -> tf.Tensor:
            loss = tf.reduce_sum(product**2)
            scale = optimizer.scale_loss if kit.is_keras3 else optimizer.get_scaled_loss
            return scale(loss) if scaled_by_stage else loss

        @tf.function(jit_compile=True)
        def program() -> None:
            ipu.pipelining_ops.pipeline(
                [lambda row: row * tf.convert_to_tensor(weight), last],
                gradient_accumulation_count=4,
                repeat_count=len(ROWS) // 4,
                infeed_queue=infeed,
                outfeed_queue=outfeed,
                optimizer_function=lambda loss: ipu.pipelining_ops.OptimizerFunctionOutput(optimizer, loss),
            )

        strategy.run(program)
    return weight.numpy()


ROWS = np.random.default_rng(5).normal(size=(16, 3)).astype(np.float32)
SCALE = 2.0**126
"""A scale with which the sum of the first gradients overflows."""


@pytest.mark.parametrize("scaled_by_stage", [False, True])
def test_a_pipeline_scales_the_loss_for_the_optimizer(kit: Kit, scaled_by_stage: bool) -> None:
    """A loop in NumPy scales, sums over micro-batches, and skips updates that are not finite."""
    kind = kit.keras.optimizers if kit.is_keras3 else kit.keras.mixed_precision
    sgd, options = kit.keras.optimizers.SGD, {"initial_scale": SCALE, "dynamic_growth_steps": 2}
    found = trained_in_a_pipeline(
        kit, lambda: kind.LossScaleOptimizer(sgd(0.02, momentum=0.5), **options), scaled_by_stage
    )
    scale, good, velocity, expected = np.float32(SCALE), 0, np.zeros(3, np.float32), np.ones(3, np.float32)
    skipped = 0
    for rows in ROWS.reshape(4, 4, 3):
        with np.errstate(over="ignore"):
            of_rows = 2 * rows**2 * expected * scale / (1 if kit.is_keras3 else scale)  # tf_keras divides before sums
            total = of_rows.sum(0, dtype=np.float32) / (scale if kit.is_keras3 else 1)
        if not np.isfinite(total).all():
            scale, good, skipped = scale / 2, 0, skipped + 1
            continue
        velocity = 0.5 * velocity - 0.02 * total
        expected, good = expected + velocity, good + 1
        if good == 2:
            scale, good = scale * 2, 0
    assert 0 < skipped < 4 and np.abs(expected - 1).max() > 0.1
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_pipeline_refuses_a_fixed_factor_of_losses() -> None:
    keras = importlib.import_module("keras")
    with pytest.raises(ConfigurationError, match="without loss_scale_factor.*Received: SGD"):
        trained_in_a_pipeline(KITS["keras"], lambda: keras.optimizers.SGD(0.1, loss_scale_factor=4.0), False)


def test_state_of_optimizers_stays_on_the_device() -> None:
    strategy = configured(1)
    with strategy.scope():
        variables = weights()
        optimizer = ipu.optimizers.GradientAccumulationOptimizerV2(train.MomentumOptimizer(0.1, 0.9), 2)

        @tf.function(jit_compile=True)
        def program():
            for _ in tf.range(2):
                optimizer.minimize(tf.reduce_sum(variables[0] ** 2), var_list=variables[:1])

        strategy.run(program)
        slot = optimizer.get_slot(variables[0], "momentum")
        held = [*optimizer._accumulators._sums.values(), optimizer._accumulators._count, slot]
    assert all(type(variable).__name__ == "IPUVariable" for variable in held)
