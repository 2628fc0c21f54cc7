"""Stateless random numbers are those of TensorFlow's kernels, and XLA's in functions of `jit_compile=True`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu
from tensorflow.python.ops import gen_stateless_random_ops_v2 as stateless

from engine.runtime.feeds import RowFeed
from ipu._internal.compiler import random_numbers
from ipu._internal.compiler.program import TracedProgram
from ipu._internal.compiler.replication import alone
from ipu._internal.compiler.trace import trace_step
from tests.exploring import sample

STATE = np.array([7, 2**64 - 300, 5], np.uint64)
"""A key, and a counter whose second half changes within a few hundred words."""
DRAWS: dict[str, Callable[..., Any]] = {
    "normal": stateless.stateless_random_normal_v2,
    "truncated": stateless.stateless_truncated_normal_v2,
    "uniform": stateless.stateless_random_uniform_v2,
}
TOLERANCES = {tf.bfloat16: 2e-2, tf.float16: 2e-3, tf.float32: 4e-6, tf.float64: 1e-12}
"""Absolute ones of normal numbers; uniform numbers have the kernels' bits."""


def on_engine(function: Callable[[Any], Any], argument: np.ndarray) -> np.ndarray:
    spec = tf.TensorSpec(argument.shape, argument.dtype)
    program = TracedProgram(alone(trace_step(function, [spec]), 1))
    return np.asarray(program.run(1, [RowFeed(argument)])[0])


def check(draw: Callable[[Any], Any], state: np.ndarray = STATE, tolerance: float = 0.0) -> None:
    received, expected = on_engine(draw, state), tf.function(draw)(tf.constant(state)).numpy()
    if not tolerance:
        np.testing.assert_array_equal(received.reshape(expected.shape), expected)
    np.testing.assert_allclose(received.reshape(expected.shape).astype("f8"), expected.astype("f8"), 0, tolerance)


@pytest.mark.sample
@pytest.mark.parametrize("dtype", random_numbers.MANTISSA_BITS)
@pytest.mark.parametrize("name", DRAWS)
def test_numbers_of_kernels(name: str, dtype: tf.DType) -> None:
    for shape in sample(([1], [5], [3, 7], [1030], [], [2, 3, 1], [0, 3]), 4):

        def draw(state: Any, shape: list[int] = shape) -> Any:
            return DRAWS[name](tf.constant(shape, tf.int32), state[:1], state[1:], 1, dtype)

        check(draw, tolerance=0.0 if name == "uniform" else TOLERANCES[dtype])


def seed_uniform(state: Any) -> Any:
    return tf.random.stateless_uniform([6], tf.cast(state[:2], tf.int64))


def in_branch(state: Any) -> Any:
    return tf.cond(state[0] > 3, lambda: seed_uniform(state), lambda: tf.ones([6]))


def in_loop(state: Any) -> Any:
    def body(k: Any, total: Any) -> Any:
        return k + 1, total + seed_uniform(state + tf.cast(k, tf.uint64))

    return tf.while_loop(lambda k, _: k < 3, body, (0, tf.zeros([6])))[1]


def in_calls(state: Any) -> Any:
    return tf.function(lambda x: 2.0 * tf.function(in_branch)(x))(state)


def in_gradient(state: Any) -> Any:
    with tf.GradientTape() as tape:
        x = tf.cast(tf.range(6), tf.float32)
        tape.watch(x)
        y = tf.function(lambda x: tf.nn.experimental.stateless_dropout(x, 0.5, tf.cast(state[:2], tf.int64)))(x)
        loss = y * y
    return tape.gradient(loss, x)


def in_gradient_of_loop(state: Any) -> Any:
    """The gradient of a function whose loop, and a loop in that, draw: a tape gives its loops other names."""
    state = tf.cast(state, tf.int64)

    def inner(k: Any, x: Any) -> Any:
        return k + 1, tf.sin(x + tf.random.stateless_normal([6], state[:2] + tf.cast(k, tf.int64)))

    def body(k: Any, x: Any) -> Any:
        x = tf.while_loop(lambda j, _: j < 2, inner, (0, x), maximum_iterations=2)[1]
        return k + 1, x + tf.random.stateless_uniform([6], state[1:] + tf.cast(k, tf.int64))

    @tf.function
    def repeated(x: Any) -> Any:
        return tf.while_loop(lambda k, _: k < 3, body, (0, x), maximum_iterations=3)[1]

    with tf.GradientTape() as tape:
        x = tf.linspace(0.1, 0.6, 6)
        tape.watch(x)
        y = repeated(x)
    return tf.stack([y, tape.gradient(y, x)])


@pytest.mark.parametrize("draw", [in_branch, in_loop, in_calls, in_gradient, in_gradient_of_loop])
def test_numbers_in_called_functions(draw: Callable[[Any], Any]) -> None:
    check(draw, tolerance=1e-6 if draw is not in_gradient_of_loop else 4e-5)


def test_a_jitted_function_draws_as_xla() -> None:
    inner = tf.function(in_branch, jit_compile=True)
    check(lambda state: inner(state) - seed_uniform(state))
    jitted, other = (tf.function(each, jit_compile=True)(tf.constant(STATE)) for each in (in_branch, in_calls))
    np.testing.assert_array_equal(on_engine(lambda state: inner(state), STATE).ravel(), jitted)
    with random_numbers.drawn_by_xla.replaced_by(True):
        np.testing.assert_array_equal(on_engine(in_calls, STATE).ravel(), other)
    assert np.any(jitted != in_branch(tf.constant(STATE)))


@pytest.mark.parametrize("jit", [None, True])
def test_a_function_run_on_a_device_draws_as_without_it(jit: bool | None) -> None:
    strategy = ipu.ipu_strategy.IPUStrategy()
    for draw in (in_branch, in_gradient, in_gradient_of_loop):
        function = tf.function(draw, jit_compile=jit)
        received = strategy.run(function, [tf.constant(STATE)])
        np.testing.assert_allclose(received, function(tf.constant(STATE)), 0, 4e-5)


@pytest.mark.parametrize("seeds", [[3, 5], [-3, 5], [2**40 + 1, -(2**63)], [7, 2**50 + 3]])
def test_keys_of_seeds(seeds: list[int]) -> None:
    for dtype in (tf.int32, tf.int64) if max(map(abs, seeds)) < 2**31 else (tf.int64,):
        check(lambda seed, to=dtype: stateless.stateless_random_get_key_counter(tf.cast(seed, to))[0], np.array(seeds))
        check(lambda seed, to=dtype: stateless.stateless_random_get_key_counter(tf.cast(seed, to))[1], np.array(seeds))


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64])
def test_integers(dtype: tf.DType) -> None:
    check(lambda state: tf.random.stateless_uniform([9], tf.cast(state[:2], tf.int64), -5, 1000, dtype))
