"""Norms with their variables, and dropout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from ipu._internal.operators.normalization import normalized
from tests.collectives.running import on_replicas
from tests.operators.comparing import check

v1 = tf.compat.v1
RANDOM = np.random.default_rng(4)
X = RANDOM.normal(size=(3, 5, 2, 6)) * 2 + 1
BETA, GAMMA = RANDOM.normal(size=(2, 6))


def definition(x: tf.Tensor, groups: int, strided: bool) -> tf.Tensor:
    """The definition of a norm by channel, with channels last."""
    numbers = [c % groups if strided else c // (x.shape[-1] // groups) for c in range(x.shape[-1])]
    columns = []
    for number in numbers:
        members = tf.gather(x, [c for c, n in enumerate(numbers) if n == number], axis=-1)
        axes = list(range(1, members.shape.rank))
        mean = tf.reduce_mean(members, axes, keepdims=True)
        variance = tf.reduce_mean((members - mean) ** 2, axes, keepdims=True)
        column = x[..., len(columns) : len(columns) + 1]
        columns.append((column - mean) / tf.sqrt(variance + 1e-3))
    return tf.concat(columns, -1)


@pytest.mark.sample(2)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(("groups", "strided"), [(2, True), (3, False), (6, True), (1, True)])
def test_norms_of_groups(dtype: Any, groups: int, strided: bool) -> None:
    def last(x: tf.Tensor, beta: tf.Tensor, gamma: tf.Tensor) -> tf.Tensor:
        return normalized(x, groups, 3, beta, gamma, 1e-3, strided)

    def first(x: tf.Tensor, beta: tf.Tensor, gamma: tf.Tensor) -> tf.Tensor:
        result = normalized(tf.transpose(x, [0, 3, 1, 2]), groups, 1, beta, gamma, 1e-3, strided)
        return tf.transpose(result, [0, 2, 3, 1])

    def expected(x: tf.Tensor, beta: tf.Tensor, gamma: tf.Tensor) -> tf.Tensor:
        return definition(x, groups, strided) * gamma + beta

    for operator in (last, first):
        check(operator, expected, X, BETA, GAMMA, dtype=dtype)


def test_variables_of_norms() -> None:
    """Programs of TensorFlow 1 see the names, collections, initial values and reuse of variables."""
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, X.shape)

        def model(x: tf.Tensor) -> list[tf.Tensor]:
            ops = ipu.normalization_ops
            start = {"gamma": v1.constant_initializer(3.0)}
            first = ops.group_norm(x, 2, param_initializers=start, scope="mine", variables_collections=["kept"])
            again = ops.group_norm(x, 2, scope="mine", reuse=True)
            other = ops.layer_norm(x, scale=False, trainable=False)
            return [first, again, other, ops.instance_norm(x, center=False)]

        results = ipu.ipu_compiler.compile(model, [x])
        names = [variable.name for variable in v1.global_variables()]
        assert names == ["mine/beta:0", "mine/gamma:0", "LayerNorm/beta:0", "InstanceNorm/gamma:0"]
        assert [variable.name for variable in v1.get_collection("kept")] == names[:2]
        assert [variable.name for variable in v1.trainable_variables()] == [*names[:2], names[3]]
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            received = session.run(results, {x: X})
    for value, groups, factor in zip(received, (2, 2, 1, 6), (3, 3, 1, 1), strict=True):
        np.testing.assert_allclose(value, definition(tf.constant(X), groups, True) * factor, rtol=2e-2, atol=2e-2)
    np.testing.assert_array_equal(received[0], received[1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"groups": 4}, "divide the 6 channels"),
        ({"groups": 0}, "divide the 6 channels"),
        ({"channels_axis": 2}, "channels_axis to be 1 or the last, 3"),
        ({"param_initializers": {"bta": 1}}, "in param_initializers. Received: .*bta"),
        ({"variables_collections": {"offset": ["kept"]}}, "in variables_collections. Received: .*offset"),
        ({"variables_collections": "kept"}, "a list of names.* Received: kept"),
    ],
)
def test_norms_that_cannot_be(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ipu.normalization_ops.group_norm(np.float32(X), **arguments)
    with tf.Graph().as_default():
        for shape in (None, [3], [3, None]):
            with pytest.raises(ValueError, match="two or more dimensions|known number"):
                ipu.normalization_ops.group_norm(v1.placeholder(tf.float32, shape))


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_dropout_and_its_gradient_have_one_mask(dtype: Any) -> None:
    ones = np.ones((40, 25), dtype)

    def function(x: tf.Tensor, seed: tf.Tensor) -> list[tf.Tensor]:
        results = []
        for drawn, shape in ((seed, None), (seed, None), (seed, [40, 1]), (seed + 1, None), (None, None)):
            with tf.GradientTape() as tape:
                tape.watch(x)
                result = ipu.rand_ops.dropout(x, 0.2, shape, drawn)
                total = 3 * result
            results += [result, tape.gradient(total, x)]
        return [*results, ipu.rand_ops.dropout(x, 0.0)]

    for received in (
        on_replicas(function, 1, ones, np.int32([1, 2])),
        function(tf.constant(ones), tf.constant([1, 2])),
    ):
        *pairs, whole = map(np.array, received)
        np.testing.assert_array_equal(whole, 1)
        for result, gradient in zip(pairs[::2], pairs[1::2], strict=True):
            np.testing.assert_allclose(np.unique(result), [0, 1.25], rtol=1e-3)
            np.testing.assert_allclose(gradient, 3 * result, rtol=2e-3)
        same, again, rows, other, drawn = pairs[::2]
        np.testing.assert_array_equal(same, again)
        assert len({each.tobytes() for each in (same, rows, other, drawn)}) == 4
        assert abs(np.mean(same == 0) - 0.2) < 0.06
        assert all(len(set(row)) == 1 for row in rows)


def test_replicas_drop_what_their_seeds_say() -> None:
    def program(x: tf.Tensor) -> list[tf.Tensor]:
        index = ipu.replication_ops.replication_index()
        seeds = (None, [3, 4], tf.stack([3, index]))
        dropped = [ipu.rand_ops.dropout(x, 0.5, seed=seed) for seed in seeds]
        return [ipu.all_to_all_op.all_gather(each, 2) for each in dropped]

    drawn, same, own = on_replicas(program, 2, np.ones(50, np.float32))
    assert np.any(drawn[0] != drawn[1]) and np.any(own[0] != own[1])
    np.testing.assert_array_equal(same[0], same[1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rate": 1.0}, r"rate in \[0, 1\)"),
        ({"rate": -0.1}, r"rate in \[0, 1\)"),
        ({"noise_shape": [3]}, "noise_shape of dimensions"),
        ({"noise_shape": [3, 2]}, "noise_shape of dimensions"),
        ({"seed": [1, 2, 3]}, "seed of two integers"),
    ],
)
def test_dropout_that_cannot_be(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ipu.rand_ops.dropout(np.ones((3, 4), np.float32), **arguments)
