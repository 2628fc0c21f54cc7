"""Functions of the host inside `ipu_compiler.compile`, run by a session."""

from __future__ import annotations

import contextvars
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from engine.errors import HostFunctionError
from tests.strategy.helpers import written

v1 = tf.compat.v1


def session_of(net: Any) -> Any:
    x = v1.placeholder(tf.float32, [2])
    fetches = ipu.ipu_compiler.compile(net, [x])
    session = v1.Session()
    session.run(v1.global_variables_initializer())
    return lambda: session.run(fetches, {x: [1.0, 2.0]})


def test_host_is_called_and_differentiated(capfd: pytest.CaptureFixture[str]) -> None:
    def net(x: tf.Tensor) -> Any:
        y = tf.py_function(lambda v: v**3, [x], tf.float32)
        y.set_shape([2])
        z = v1.py_func(np.negative, [y], tf.float32)
        z.set_shape([2])
        z = v1.Print(z, ["first", x], "At most once: ", first_n=1)
        with tf.control_dependencies([tf.print("x is", x)]):
            return z, tf.gradients(2 * y, x)

    with tf.Graph().as_default():
        run = session_of(net)
        for _ in range(2):
            z, (gradient,) = run()
            np.testing.assert_allclose(z, [-1, -8])
            np.testing.assert_allclose(gradient, [6, 24])
    text = written(capfd)
    assert text.count("x is [1 2]\n") == 2  # and a warning about py_func in between
    assert text.count("At most once: [first][1 2]\n") == 1


@pytest.mark.parametrize("kind", ["tf.gradients", "an optimizer"])
def test_a_loss_computed_outside_has_gradients(kind: str) -> None:
    """The loss (x w)^2 + exp(w), summed, of w = 1: its gradient is 2 x^2 + e."""

    def net(x: tf.Tensor) -> Any:
        weights = v1.get_variable("w", [2], initializer=v1.ones_initializer(), use_resource=True)
        y = x * weights
        with ipu.scopes.outside_compilation_scope():
            loss = tf.reduce_sum(y * y + tf.exp(weights))
        if kind == "tf.gradients":
            return loss, *tf.gradients(loss, [weights])
        ((gradient, _),) = v1.train.GradientDescentOptimizer(0.125).compute_gradients(loss)
        return loss, gradient

    with tf.Graph().as_default():
        loss, gradient = session_of(net)()
    np.testing.assert_allclose(loss, 5 + 2 * np.e, rtol=1e-6)
    np.testing.assert_allclose(gradient, [2 + np.e, 8 + np.e], rtol=1e-6)


def test_outside_compilation_trains_a_variable() -> None:
    def net(x: tf.Tensor) -> Any:
        weights = v1.get_variable("w", [2], initializer=v1.ones_initializer(), use_resource=True)
        with ipu.scopes.outside_compilation_scope():
            letters = tf.reduce_sum(tf.strings.length(tf.strings.as_string(x, precision=1)))
            y = x * weights
        loss = tf.reduce_sum(y * y)
        with tf.control_dependencies([v1.train.GradientDescentOptimizer(0.125).minimize(loss)]):
            return loss, letters, weights.read_value()

    with tf.Graph().as_default():
        loss, letters, weights = session_of(net)()
    assert (loss, letters) == (5, 6)
    np.testing.assert_allclose(weights, [0.75, 0])


def test_error_is_that_of_the_callable() -> None:
    def bad(value: np.ndarray) -> np.ndarray:
        raise LookupError("no such value")

    with tf.Graph().as_default():
        run = session_of(lambda x: tf.py_function(bad, [x], tf.TensorSpec([2], tf.float32)))
        for _ in range(2):
            with pytest.raises(LookupError, match="no such value"):
                run()


def test_callable_sees_the_context_of_the_caller_and_assigns_no_variable_of_the_program() -> None:
    seen = []
    name = contextvars.ContextVar("name", default="")

    def assigning(value: np.ndarray) -> np.ndarray:
        seen.append(name.get())
        if value[0] == 1:
            session.run(other.initializer)
            session.run(weights.initializer)
        return value

    with tf.Graph().as_default():
        weights = v1.get_variable("w", [2], initializer=v1.ones_initializer(), use_resource=True)
        other = v1.get_variable("other", [2], initializer=v1.ones_initializer(), use_resource=True)

        def net() -> Any:
            y = tf.ensure_shape(tf.numpy_function(assigning, [weights.read_value()], tf.float32), [2])
            return weights.assign_add(y).read_value()

        (after,) = ipu.ipu_compiler.compile(net)
        session = v1.Session()
        session.run([weights.initializer, other.initializer])
        name.set("mine")
        with pytest.raises(HostFunctionError, match="leave the variables of the program .* assignment to 'w'"):
            session.run(after)
        np.testing.assert_array_equal(session.run([weights, weights.assign([3.0, 4.0])])[1], [3, 4])
        np.testing.assert_array_equal(session.run(after), [6, 8])
    assert seen == ["mine"] * 2
