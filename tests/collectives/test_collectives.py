"""The operators between replicas inside traced functions, and their gradients."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from tests.collectives.running import on_replicas

REPLICAS = [1, 2, 4]
X = np.float32([[1, -2, 3, 0.5], [4, 0, -1, 2]])


def own(x):
    """Returns a value that differs on each replica: x times (its number + 1)."""
    return x * tf.cast(ipu.replication_ops.replication_index() + 1, x.dtype)


def all_own(replicas: int, x: np.ndarray = X) -> np.ndarray:
    return np.stack([x * np.asarray(r + 1, x.dtype) for r in range(replicas)])


def everybody(value, replicas: int):
    """The values of all replicas, [replicas, ...]."""
    return ipu.all_to_all_op.all_gather(value, replicas)


@pytest.mark.parametrize("replicas", REPLICAS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32])
def test_sum_and_mean(replicas: int, dtype: type) -> None:
    x = (X * 4).astype(dtype)

    def function(x):
        ops = ipu.cross_replica_ops
        return ops.cross_replica_sum(own(x)), ipu.ops.cross_replica_ops.cross_replica_mean(own(x), name="mean")

    total, mean = on_replicas(function, replicas, x)
    np.testing.assert_array_equal(total, all_own(replicas, x).sum(0, dtype=dtype))
    expected = all_own(replicas, x).sum(0, dtype=dtype) / np.asarray(replicas, dtype)
    np.testing.assert_array_equal(mean, np.trunc(expected).astype(dtype) if dtype is np.int32 else expected)


@pytest.mark.parametrize(("replicas", "size"), [(4, 2), (4, 1), (2, 0), (2, None)])
def test_sums_in_groups(replicas: int, size: int | None) -> None:
    def function(x):
        return everybody(ipu.cross_replica_ops.cross_replica_sum(own(x), replica_group_size=size), replicas)

    groups = all_own(replicas).reshape(-1, size or replicas, *X.shape).sum(1)
    np.testing.assert_array_equal(on_replicas(function, replicas, X), np.repeat(groups, size or replicas, 0))


@pytest.mark.parametrize("replicas", REPLICAS)
def test_the_gradient_of_a_sum_is_the_sum_of_gradients(replicas: int) -> None:
    """Checked against the derivative of all replicas' losses by each replica's x."""

    def function(x):
        value = own(x)
        with tf.GradientTape() as tape:
            tape.watch(value)
            total = ipu.cross_replica_ops.cross_replica_sum(value)
            mean = ipu.cross_replica_ops.cross_replica_mean(value)
            loss = own(tf.reduce_sum(total * total) + 3 * tf.reduce_sum(mean))
        return everybody(tape.gradient(loss, value), replicas)

    weight = replicas * (replicas + 1) / 2
    total = all_own(replicas).sum(0)
    expected = weight * 2 * total + 3 * weight / replicas
    received = on_replicas(function, replicas, X)
    np.testing.assert_allclose(received, np.stack([expected] * replicas), rtol=1e-6)


@pytest.mark.parametrize("replicas", REPLICAS)
@pytest.mark.parametrize(("split", "joined"), [(0, 1), (1, 0), (1, 1)])
def test_all_to_all_and_its_gradient(replicas: int, split: int, joined: int) -> None:
    x = np.arange(96, dtype=np.float32).reshape(8, 12)

    def function(x):
        value = own(x)
        with tf.GradientTape() as tape:
            tape.watch(value)
            moved = ipu.all_to_all_op.all_to_all(value, split, joined, replicas)
            loss = own(tf.reduce_sum(moved * moved))
        return everybody(moved, replicas), everybody(tape.gradient(loss, value), replicas)

    values = all_own(replicas, x)
    blocks = np.array([np.split(value, replicas, split) for value in values])
    moved, gradient = on_replicas(function, replicas, x)
    np.testing.assert_array_equal(moved, [np.concatenate(list(blocks[:, r]), joined) for r in range(replicas)])
    back = [np.concatenate([2 * (r + 1) * blocks[own][r] for r in range(replicas)], split) for own in range(replicas)]
    np.testing.assert_array_equal(gradient, back)


@pytest.mark.parametrize(("replicas", "size"), [(1, 1), (2, 2), (4, 4), (4, 2)])
def test_gathering_and_scattering_and_their_gradients(replicas: int, size: int) -> None:
    x = np.float32([1, -2, 3, 0.5, 7])

    def function(x):
        value = own(x)
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(value)
            gathered = ipu.all_to_all_op.all_gather(value, size)
            scattered = ipu.reduce_scatter_op.reduce_scatter([value, 2 * value], size)[1]
            scale = tf.reshape(tf.range(1.0, 5 * size + 1), [size, 5])
            first = own(tf.reduce_sum(gathered * scale))
            second = own(tf.reduce_sum(scattered))
        gradients = [tape.gradient(loss, value) for loss in (first, second)]
        return [everybody(each, replicas) for each in (gathered, scattered, *gradients)]

    gathered, scattered, first, second = on_replicas(function, replicas, x)
    groups = all_own(replicas, x).reshape(-1, size, 5)
    np.testing.assert_array_equal(gathered, np.repeat(groups, size, 0))
    length = -(-5 // size)
    padded = np.zeros((len(groups), size * length), np.float32)
    padded[:, :5] = 2 * groups.sum(1)
    np.testing.assert_array_equal(scattered, padded.reshape(replicas, length))
    numbers = np.arange(1, replicas + 1).reshape(-1, size)
    scale = np.arange(1, 5 * size + 1).reshape(size, 5)
    np.testing.assert_array_equal(first, np.concatenate([scale * group.sum() for group in numbers]))
    owners = np.arange(5) // length
    np.testing.assert_array_equal(second, np.concatenate([[2 * group[owners]] * size for group in numbers]))


def test_local_and_logical_operations() -> None:
    def function(x):
        ops = [f"COLLECTIVE_OP_{name}" for name in ("LOCAL", "LOGICAL_AND", "MAX", "SQUARE_ADD")]
        return [everybody(ipu.reduce_scatter_op.reduce_scatter(own(x), 2, op), 2) for op in ops]

    local, both, most, squares = on_replicas(function, 2, np.int32([1, 0, -3, 4]))
    np.testing.assert_array_equal(local, [[1, 0], [-6, 8]])
    np.testing.assert_array_equal(both, [[1, 0], [1, 1]])
    np.testing.assert_array_equal(most, [[2, 0], [-3, 8]])
    np.testing.assert_array_equal(squares, [[5, 0], [45, 80]])


def test_logical_operations_on_booleans() -> None:
    """Replica 1 has the opposite of replica 0's x. Two replicas share three elements: the last slice ends in False."""
    x = np.array([True, False, True])

    def function(x):
        mine = tf.math.logical_xor(x, ipu.replication_ops.replication_index() == 1)
        mine = tf.math.logical_or(mine, tf.constant([True, False, False]))
        results = []
        for name in ("LOGICAL_AND", "LOGICAL_OR", "LOCAL"):
            part = ipu.reduce_scatter_op.reduce_scatter(mine, 2, f"COLLECTIVE_OP_{name}")
            assert part.dtype == tf.bool
            results.append(everybody(tf.cast(part, tf.int32), 2))
        return results

    both, either, local = on_replicas(function, 2, x)
    np.testing.assert_array_equal(both, [[1, 0], [0, 0]])
    np.testing.assert_array_equal(either, [[1, 1], [1, 0]])
    np.testing.assert_array_equal(local, [[1, 0], [0, 0]])
    for name in ("ADD", "MAX", "MEAN"):
        with pytest.raises(TypeError, match=r"numeric type\. Received: bool"):
            on_replicas(lambda x, name=name: ipu.reduce_scatter_op.reduce_scatter(x, 2, f"COLLECTIVE_OP_{name}"), 2, x)


@pytest.mark.parametrize("replicas", REPLICAS)
def test_replicas_keep_their_own_variables(replicas: int) -> None:
    variable, shared = tf.Variable(X), tf.Variable(X)

    def function():
        variable.assign_add(own(tf.ones_like(variable)))
        shared.assign_add(ipu.cross_replica_ops.assume_equal_across_replicas({"v": variable})["v"])
        return everybody(variable.read_value(), replicas)

    from tests.collectives.running import OnReplicas

    program = OnReplicas(function, replicas)
    for iteration in (1, 2):
        expected = [X + iteration * (r + 1) for r in range(replicas)]
        np.testing.assert_array_equal(program(), expected)
    np.testing.assert_array_equal(variable.numpy(), X + 2)
    np.testing.assert_array_equal(shared.numpy(), X + (X + 1) + (X + 2))
    assert len(program.traced.roles) - 2 == (1 if replicas > 1 else 0)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (
            lambda x: ipu.cross_replica_ops.cross_replica_sum(x, replica_group_size=-1),
            ValueError,
            "Nearest legal value: 1",
        ),
        (lambda x: ipu.cross_replica_ops.cross_replica_sum(x > 0), TypeError, "Received: bool"),
        (lambda x: ipu.all_to_all_op.all_gather(x, 0), ValueError, "replication_factor"),
        (lambda x: ipu.all_to_all_op.all_to_all(x, 2, 0, 2), ValueError, "split_dimension.*from 0 to 1"),
        (lambda x: ipu.all_to_all_op.all_to_all(x, 1, 0, 3), ValueError, "Nearest: 3"),
        (lambda x: ipu.reduce_scatter_op.reduce_scatter(x, 2), ValueError, "rank 1"),
        (lambda x: ipu.reduce_scatter_op.reduce_scatter(x[0], 2, "ADD"), ValueError, "COLLECTIVE_OP_ADD"),
        (lambda x: ipu.all_to_all_op.all_gather(x, 4), ValueError, "divides the number of replicas"),
    ],
)
def test_what_cannot_be_is_refused(call, error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        on_replicas(call, 2, X)


def test_a_collective_outside_of_a_program_is_refused() -> None:
    with pytest.raises(ValueError, match=r"IPUStrategy\.run"):
        ipu.cross_replica_ops.cross_replica_sum(tf.constant(1.0))
    with pytest.raises(ValueError, match=r"IPUStrategy\.run"):
        ipu.replication_ops.replication_index()
