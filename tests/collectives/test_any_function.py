"""Functions of all kinds on replicas with values of their own, against the same function called once for each."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from tests.collectives.running import OnReplicas, on_replicas

X = np.float32([[0.5, -1, 2, 0.25], [1.5, 0.75, -0.5, 1], [2, -2, 0.125, 3]])
KERNEL = np.linspace(-1, 1, 4 * 8, dtype=np.float32).reshape(4, 8)


def scanned(x):
    return tf.scan(lambda total, row: tf.tanh(total + row), x)


def recurrent(x):
    def iteration(step, state, rows):
        state = tf.tanh(state @ KERNEL[:, :4] + x[step])
        return step + 1, state, rows.write(step, state)

    rows = tf.TensorArray(tf.float32, 3, element_shape=[1, 4])
    _, last, rows = tf.while_loop(lambda step, *_: step < 3, iteration, (0, x[:1], rows))
    return rows.stack(), last


def with_gradient(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(scanned(x) ** 2) + tf.reduce_max(x @ KERNEL)
    return tape.gradient(loss, x)


def own_iterations(x):
    """A loop that some replicas leave earlier, with one inside that all leave together."""

    def inner(value):
        return tf.while_loop(lambda k, _: k < 2, lambda k, v: (k + 1, v * 1.5 + 1.0), (0, value))[1]

    return tf.while_loop(
        lambda n, value: tf.reduce_sum(tf.abs(value)) < 500.0, lambda n, value: (n + 1, inner(value)), (0, x)
    )


def branching(x):
    return tf.cond(tf.reduce_sum(x) > 10.0, lambda: tf.sin(x) @ KERNEL, lambda: tf.exp(-x * x) @ KERNEL)


def switching(x):
    index = tf.cast(tf.reduce_max(x), tf.int32) // 3
    return tf.switch_case(index, [lambda: x, lambda: x * 2.0, lambda: tf.cumsum(x, 1), lambda: -x])


def sorted_and_gathered(x):
    values, places = tf.math.top_k(x, 2)
    rows = tf.gather(KERNEL, tf.argsort(x, axis=1)[:, 0])
    updated = tf.tensor_scatter_nd_add(tf.zeros([4, 3]), places[:, :1], x[:, :3])
    return values, places, rows, updated


def normalized(x):
    mean, variance = tf.nn.moments(x, 0)
    return tf.nn.batch_normalization(x, mean, variance, 0.1, 2.0, 1e-3)


def convolved(x):
    images = tf.reshape(tf.tile(x, [1, 4]), [1, 6, 8, 1])
    filters = tf.reshape(tf.constant(KERNEL), [2, 2, 1, 8])
    return tf.nn.max_pool2d(tf.nn.conv2d(images, filters, 1, "SAME"), 2, 2, "VALID")


def mapped(x):
    return tf.map_fn(lambda row: tf.where(row > 0.5, row, tf.reverse(row, [0])), x)


def integers(x):
    whole = tf.cast(x * 4.0, tf.int32)
    return tf.bitwise.bitwise_xor(whole, 3) // 2, tf.cast(whole, tf.float16) / 3, whole > 1


def partly(x):
    """A loop that combines a value equal on all replicas with one that differs."""
    shared = tf.cumsum(tf.constant(KERNEL), 0)
    return tf.while_loop(
        lambda n, same, own: n < 3,
        lambda n, same, own: (n + 1, tf.sin(same), own @ same[:, :4] + 0.1),
        (0, shared, x),
    )[1:]


FUNCTIONS = [
    scanned,
    recurrent,
    with_gradient,
    own_iterations,
    branching,
    switching,
    sorted_and_gathered,
    normalized,
    convolved,
    mapped,
    integers,
    partly,
]


@pytest.mark.sample(8)
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("replicas", [1, 3])
def test_each_replica_computes_its_own(function, replicas: int) -> None:
    """Every replica's results reach replica 0 by an all-gather; bool has none, so it goes as an integer."""

    def program(x):
        index = tf.cast(ipu.replication_ops.replication_index(), tf.float32)
        results = tf.nest.flatten(function(x * (index + 1)))
        numbers = [tf.cast(r, tf.int32) if r.dtype == tf.bool else r for r in results]
        return [ipu.all_to_all_op.all_gather(each, replicas) for each in numbers]

    received = on_replicas(program, replicas, X)
    expected = [tf.nest.flatten(tf.function(function)(tf.constant(X * (r + 1)))) for r in range(replicas)]
    for values, each in zip(received, zip(*expected, strict=True), strict=True):
        np.testing.assert_allclose(values, np.stack([e.numpy() for e in each]), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_random_numbers_differ_between_replicas(replicas: int) -> None:
    """Numbers of a generator, whose state is a variable, and those without a seed differ; seeded ones do not."""
    generator = tf.random.Generator.from_seed(7)

    def program():
        drawn = [
            generator.uniform([40]),
            tf.random.uniform([40]),
            tf.nn.dropout(tf.ones([40]), 0.5),
            tf.random.stateless_uniform([40], seed=[1, 2]),
        ]
        return [ipu.all_to_all_op.all_gather(each, replicas) for each in drawn]

    run = OnReplicas(program, replicas)
    first, second = run(), run()
    for one, other in zip(first[:3], second[:3], strict=True):
        assert len(np.unique(np.concatenate([one, other]), axis=0)) == 2 * replicas
    assert len(np.unique(np.concatenate([first[3], second[3]]), axis=0)) == 1
    # Replica 0 draws what a program of one replica does.
    again = tf.random.Generator.from_seed(7)
    np.testing.assert_array_equal(first[0][0], on_replicas(lambda: again.uniform([40]), 1))


@pytest.mark.parametrize("replicas", [1, 2])
def test_variables_in_loops(replicas: int) -> None:
    """Moving statistics are each replica's own; the weights trained with them stay equal on all replicas."""
    weights, moving = tf.Variable(tf.ones([4, 2])), tf.Variable(tf.zeros([4]))

    def program(x):
        index = tf.cast(ipu.replication_ops.replication_index(), tf.float32)

        def iteration(step):
            own = x * (index + 1) + tf.cast(step, tf.float32)
            moving.assign(0.9 * moving + 0.1 * tf.reduce_mean(own, 0))
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square((own - moving) @ weights))
            gradient = ipu.cross_replica_ops.cross_replica_mean(tape.gradient(loss, weights))
            weights.assign_sub(0.01 * gradient)
            return step + 1

        with tf.control_dependencies(tf.nest.flatten(tf.while_loop(lambda step: step < 4, iteration, [0]))):
            return ipu.all_to_all_op.all_gather(moving.read_value(), replicas)

    run = OnReplicas(program, replicas, X)
    assert len(run.traced.roles) == 3 + (replicas > 1)
    received = [run(X) for _ in range(2)]
    w, m = np.ones((4, 2)), np.zeros((replicas, 4))
    for call in range(2):
        for step in range(4):
            gradients = []
            for r in range(replicas):
                own = X * (r + 1) + step
                m[r] = 0.9 * m[r] + 0.1 * own.mean(0)
                error = (own - m[r]) @ w
                gradients.append((own - m[r]).T @ error * 2 / error.size)
            w = w - 0.01 * np.mean(gradients, 0)
        np.testing.assert_allclose(received[call], m, rtol=1e-5)
    np.testing.assert_allclose(weights.numpy(), w, rtol=1e-5)
    np.testing.assert_allclose(moving.numpy(), m[0], rtol=1e-5)
