"""Optimizers in training loops, against plain optimizers in eager TensorFlow that get the sums themselves."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu
from tensorflow.python.ipu.gradient_accumulation import GradientAccumulationReductionMethod as Method

from ipu._internal.accumulators import running_mean_terms
from tests.collectives.running import on_replicas
from tests.optimizers.training import Trained, loss_of, plainly_trained, weights

train = tf.compat.v1.train
REPLICAS = [1, 2, 4]
PLAIN = {
    "sgd": lambda: train.GradientDescentOptimizer(0.1),
    "momentum": lambda: train.MomentumOptimizer(0.05, 0.9),
    "adam": lambda: train.AdamOptimizer(0.01),
    "rmsprop": lambda: train.RMSPropOptimizer(0.01, momentum=0.5),
}


def close(received: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for one, other in zip(received, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6)


@pytest.mark.sample(3)
@pytest.mark.parametrize("replicas", REPLICAS)
@pytest.mark.parametrize("plain", ["sgd", "adam"])
def test_cross_replica_optimizer_averages(plain: str, replicas: int) -> None:
    trained = Trained(lambda: ipu.optimizers.CrossReplicaOptimizer(PLAIN[plain]()), 4, replicas)
    close(trained.values, plainly_trained(PLAIN[plain], 4, replicas, 1))


@pytest.mark.parametrize("replicas", [1, 2])
def test_without_it_each_replica_trains_by_itself(replicas: int) -> None:
    trained = Trained(lambda: ipu.optimizers.IpuOptimizer(PLAIN["momentum"]()), 3, replicas)
    close(trained.values, plainly_trained(PLAIN["momentum"], 3, replicas, 1, first_only=True))


@pytest.mark.sample(3)
@pytest.mark.parametrize("replicas", REPLICAS)
@pytest.mark.parametrize("plain", sorted(PLAIN))
@pytest.mark.parametrize("batches", [1, 3])
def test_cross_replica_accumulation(plain: str, replicas: int, batches: int) -> None:
    def make():
        return ipu.optimizers.CrossReplicaGradientAccumulationOptimizerV2(PLAIN[plain](), batches)

    trained = Trained(make, 6, replicas)
    close(trained.values, plainly_trained(PLAIN[plain], 6, replicas, batches))


@pytest.mark.sample(3)
@pytest.mark.parametrize("method", list(Method))
@pytest.mark.parametrize("plain", ["momentum", "adam"])
def test_reductions(plain: str, method: Method) -> None:
    def make():
        return ipu.optimizers.GradientAccumulationOptimizerV2(PLAIN[plain](), 4, reduction_method=method)

    scale = 1.0 if method is Method.SUM else 0.25
    close(Trained(make, 8, 1).values, plainly_trained(PLAIN[plain], 8, 1, 4, scale=scale))


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("plain", ["sgd", "momentum"])
def test_the_first_kind_updates_once_too(plain: str, replicas: int) -> None:
    step = tf.Variable(0, dtype=tf.int64)

    def make():
        return ipu.optimizers.CrossReplicaGradientAccumulationOptimizer(PLAIN[plain](), 2)

    trained = Trained(make, 6, replicas, global_step=step)
    close(trained.values, plainly_trained(PLAIN[plain], 6, replicas, 2))
    assert step.numpy() == 6


def test_the_first_kind_gives_other_optimizers_zeros_between_updates() -> None:
    trained = Trained(
        lambda: ipu.optimizers.GradientAccumulationOptimizer(PLAIN["adam"](), 2, verify_usage=False), 4, 1
    )
    beta1, _ = trained.optimizer._opt._get_beta_accumulators()
    np.testing.assert_allclose(beta1.numpy(), 0.9**5, rtol=1e-6)
    with pytest.raises(tf.errors.FailedPreconditionError, match="AdamOptimizer.*verify_usage=False"):
        Trained(lambda: ipu.optimizers.GradientAccumulationOptimizer(PLAIN["adam"](), 2), 4, 1)


def test_global_step_and_state_move_once_in_each_update() -> None:
    step = tf.Variable(0, dtype=tf.int64)
    trained = Trained(
        lambda: ipu.optimizers.GradientAccumulationOptimizerV2(PLAIN["adam"](), 3), 6, 1, global_step=step
    )
    assert step.numpy() == 2
    beta1, _ = trained.optimizer._opt._get_beta_accumulators()
    np.testing.assert_allclose(beta1.numpy(), 0.9**3, rtol=1e-6)
    assert trained.optimizer.get_name() == "Adam"
    assert trained.optimizer.get_slot_names() == ["m", "v"]
    assert trained.optimizer.get_slot(trained.variables[0], "m").numpy().any()
    assert len(trained.optimizer.variables()) == 6


@pytest.mark.parametrize("replicas", [1, 2])
def test_accumulation_goes_on_from_one_execution_to_the_next(replicas: int) -> None:
    def make():
        return ipu.optimizers.CrossReplicaGradientAccumulationOptimizerV2(PLAIN["momentum"](), 4)

    # The number of iterations is an argument of the program, so nothing can say that 2 is not a multiple of 4.
    trained = Trained(make, 2, replicas, runs=4)
    close(trained.values, plainly_trained(PLAIN["momentum"], 8, replicas, 4))


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16, tf.float32, tf.float64], ids=lambda dtype: dtype.name)
def test_shares_of_running_means_are_rounded_once(dtype: tf.DType) -> None:
    """Types of halves cannot hold a count of 2701."""
    one = tf.constant(1, dtype)
    kept, _ = running_mean_terms(one, one, tf.constant(2700))
    assert float(kept) == float(tf.cast(tf.constant(2700 / 2701, tf.float64), dtype))


def test_accumulators_of_another_type() -> None:
    seen = []

    def remember(gradient, value):
        seen.append((gradient.dtype, value.dtype))
        return tf.cast(gradient, value.dtype)

    from ipu.optimizers.map_gradient_optimizer import MapGradientOptimizerInvertedChaining

    def make(dtype):
        inner = MapGradientOptimizerInvertedChaining(PLAIN["sgd"](), remember)
        return ipu.optimizers.GradientAccumulationOptimizerV2(inner, 2, dtype=dtype)

    half = Trained(lambda: make(tf.float16), 4, 1)
    assert set(seen) == {(tf.float16, tf.float32)}
    for one, other in zip(half.values, plainly_trained(PLAIN["sgd"], 4, 1, 2), strict=True):
        # The error of four gradients of magnitude 1 at most, in halves of 11 bits, times the rate of 0.1.
        np.testing.assert_allclose(one, other, atol=8 * 2**-11 * 0.1)
        assert np.abs(one - other).max() > 0
    seen.clear()
    Trained(lambda: make(lambda variable: tf.float16 if "bias" in variable.name else tf.float32), 4, 1)
    assert set(seen) == {(tf.float32, tf.float32), (tf.float16, tf.float32)}


@pytest.mark.parametrize(("iterations", "batches", "nearest"), [(5, 2, 4), (3, 4, 4), (10, 4, 8)])
def test_loops_of_other_numbers_of_iterations_are_refused(iterations: int, batches: int, nearest: int) -> None:
    words = f"{batches} number of mini batches inside a loop with {iterations} iterations.*Nearest: {nearest}"
    with pytest.raises(tf.errors.FailedPreconditionError, match=words):
        Trained(lambda: ipu.optimizers.GradientAccumulationOptimizerV2(PLAIN["sgd"](), batches), iterations, 1)


def test_outside_of_a_loop_is_refused() -> None:
    variables, optimizer = weights(), ipu.optimizers.GradientAccumulationOptimizerV2(PLAIN["sgd"](), 2)

    def function(x):
        loss = loss_of(variables, x, tf.zeros([3, 2]))
        with tf.control_dependencies([optimizer.minimize(loss, var_list=variables)]):
            return tf.identity(loss)

    with pytest.raises(tf.errors.FailedPreconditionError, match="outside of any loop"):
        on_replicas(function, 1, np.ones((3, 4), np.float32))


def test_mapped_gradients_of_the_chapter() -> None:
    """The example of 18.15.1, as a function: 5.01, 4.02 and 3.03 in place of 5, 4 and 3."""
    variables = [tf.Variable([v]) for v in (1.0, 2.0, 3.0)]
    optimizer = ipu.map_gradient_optimizer.MapGradientOptimizer(
        PLAIN["sgd"](), lambda gradient, variable: gradient + 0.01 * variable
    )

    def function():
        a, b, c = variables
        pairs = optimizer.compute_gradients(a * b + a * c + b * c, variables)
        assert [variable for _, variable in pairs] == variables
        return [gradient for gradient, _ in pairs]

    np.testing.assert_allclose(np.ravel(on_replicas(function, 1)), [5.01, 4.02, 3.03], rtol=1e-6)


def test_mapping_before_and_after_averaging() -> None:
    """The sign is taken of each replica's gradients, or of their mean."""
    from ipu.optimizers.map_gradient_optimizer import MapGradientOptimizerInvertedChaining

    def sign(gradient, _):
        return tf.sign(gradient)

    def step(optimizer, variable):
        def function():
            index = tf.cast(ipu.replication_ops.replication_index(), tf.float32)
            loss = variable * (3.0 - 4.0 * index)
            with tf.control_dependencies([optimizer.minimize(loss, var_list=[variable])]):
                return tf.constant(0)

        on_replicas(function, 2)
        return variable.numpy()

    before = ipu.optimizers.MapGradientOptimizer(ipu.optimizers.CrossReplicaOptimizer(PLAIN["sgd"]()), sign)
    assert step(before, tf.Variable(1.0)) == 1.0
    after = ipu.optimizers.CrossReplicaOptimizer(MapGradientOptimizerInvertedChaining(PLAIN["sgd"](), sign))
    np.testing.assert_allclose(step(after, tf.Variable(1.0)), 0.9)


def test_sharded_optimizer() -> None:
    trained = Trained(lambda: ipu.sharded_optimizer.ShardedOptimizer(PLAIN["momentum"]()), 3, 1)
    close(trained.values, plainly_trained(PLAIN["momentum"], 3, 1, 1))


@pytest.mark.parametrize("framework", ["keras", "tf_keras"])
def test_keras_optimizers_are_refused(framework: str) -> None:
    keras = pytest.importorskip(framework)
    for wrap in (ipu.optimizers.IpuOptimizer, ipu.optimizers.CrossReplicaOptimizer):
        with pytest.raises(ValueError, match=r"tf\.compat\.v1\.train\.Optimizer.*Received: .*SGD"):
            wrap(keras.optimizers.SGD())


@pytest.mark.parametrize("count", [0, -1, 1.5, True])
def test_numbers_of_batches_that_cannot_be(count) -> None:
    with pytest.raises(ValueError, match="integer of at least 1.*Nearest legal value: 1"):
        ipu.optimizers.GradientAccumulationOptimizerV2(PLAIN["sgd"](), count)


def test_alternative_paths_are_the_same_classes() -> None:
    import tensorflow.python.ipu.gradient_accumulation_optimizer as accumulation

    assert ipu.cross_replica_optimizer.CrossReplicaOptimizer is ipu.optimizers.CrossReplicaOptimizer
    assert accumulation.GradientAccumulationOptimizerV2 is ipu.optimizers.GradientAccumulationOptimizerV2
    assert ipu.optimizers.sharded_optimizer.ShardedOptimizer is ipu.optimizers.ShardedOptimizer
