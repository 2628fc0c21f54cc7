"""Models of tf_keras built inside programs: their own placeholders, which nothing feeds, are left out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from tensorflow.python import ipu

from engine.errors import UnsupportedOperation

v1 = tf.compat.v1
layers = tf_keras.layers
X = np.random.default_rng(3).random((4, 6)).astype("f")


def sequential() -> Any:
    return tf_keras.Sequential([layers.Dense(5, activation="relu", input_shape=(6,)), layers.Dense(3)])


def functional() -> Any:
    inputs = tf_keras.Input((6,))
    hidden = layers.Dense(5, activation="tanh")(inputs)
    return tf_keras.Model(inputs, layers.Dense(3)(layers.Concatenate()([hidden, inputs])))


def normalised() -> Any:
    return tf_keras.Sequential([layers.Dense(5, input_shape=(6,)), layers.BatchNormalization(), layers.Dropout(0.0)])


def nested() -> Any:
    return tf_keras.Sequential([sequential(), layers.Dense(2, input_shape=(3,))])


def plainly(model: Any, x: tf.Tensor) -> Any:
    return model()(x, training=False)


def in_loop(model: Any, x: tf.Tensor) -> Any:
    return ipu.loops.repeat(2, lambda total: total + tf.reduce_sum(model()(x, training=False)), [0.0])


def in_branch(model: Any, x: tf.Tensor) -> Any:
    return tf.cond(x[0, 0] > -1, lambda: tf.reduce_sum(model()(x, training=False)), lambda: 0.0)


def outlined(model: Any, x: tf.Tensor) -> Any:
    return ipu.outlined_function(lambda x: model()(x, training=False))(x)


CASES = [
    (sequential, plainly),
    (normalised, in_loop),
    (nested, in_branch),
    (functional, outlined),
    (functional, in_loop),
]


@pytest.mark.parametrize("model, place", CASES)
def test_a_model_built_in_a_program(model: Any, place: Any) -> None:
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, X.shape)
        result = ipu.ipu_compiler.compile(lambda x: place(model, x), [x])
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            found = np.ravel(session.run(result, {x: X}))
            weights = session.run(v1.global_variables())
    with tf.Graph().as_default():  # the same weights in plain TensorFlow
        made = model()
        expected = made(X, training=False)
        with v1.Session() as session:
            for variable, value in zip(v1.global_variables(), weights, strict=True):
                variable.load(value, session)
            values = session.run(expected)
    np.testing.assert_allclose(
        found, np.ravel({in_loop: 2 * values.sum(), in_branch: values.sum()}.get(place, values)), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("place", [plainly, in_loop])
def test_a_placeholder_that_is_used_is_refused(place: Any) -> None:
    def wrong(x: tf.Tensor) -> tf.Tensor:
        return place(lambda: lambda x, training: x + v1.placeholder(tf.float32, [], name="forgotten"), x)

    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, X.shape)
        result = ipu.ipu_compiler.compile(wrong, [x])
        with (
            v1.Session() as session,
            pytest.raises(
                UnsupportedOperation, match="Placeholder at '.*forgotten'.* as one of ipu_compiler.compile's inputs"
            ),
        ):
            session.run(result, {x: X})
