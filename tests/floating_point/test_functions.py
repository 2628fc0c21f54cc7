"""Floating-point behaviour of plain functions in a strategy, and of scopes."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from engine.errors import FloatingPointException
from ipu import scopes
from ipu.ipu_strategy import IPUStrategy
from tests.floating_point.configured import configure


def rounded(x: np.ndarray) -> np.ndarray:
    strategy = IPUStrategy()

    @tf.function(jit_compile=True)
    def narrow(value: tf.Tensor) -> tf.Tensor:
        return tf.cast(value, tf.float16)

    return np.asarray(strategy.run(narrow, (tf.constant(x),)))


X = np.full(4000, 1 + 2.0**-12, np.float32)


def test_rounding_of_a_cast() -> None:
    configure()
    assert (rounded(X) == 1).all()
    configure(esr=True)
    result = rounded(X).astype(np.float64)
    assert set(np.unique(result)) == {1.0, 1 + 2.0**-10}
    assert abs(result.mean() - X[0]) < 5 * 2.0**-11 / np.sqrt(X.size)


@pytest.mark.parametrize("esr", [False, True])
@pytest.mark.parametrize("override", [False, True])
def test_a_scope_overrides_the_configuration(esr: bool, override: bool) -> None:
    configure(esr=esr)
    strategy = IPUStrategy()

    @tf.function(jit_compile=True)
    def narrow(value: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with scopes.stochastic_rounding(override):
            inside = tf.cast(value, tf.float16)
        return inside, tf.cast(value * 1.0000001, tf.float16)

    inside, outside = (np.asarray(r) for r in strategy.run(narrow, (tf.constant(X),)))
    assert (np.unique(inside).size > 1) == override
    assert (np.unique(outside).size > 1) == esr


def test_an_exception_and_variables() -> None:
    configure(oflo=True)
    strategy = IPUStrategy()
    with strategy.scope():
        variable = tf.Variable(tf.ones(10))

        @tf.function(jit_compile=True)
        def grow(factor: tf.Tensor) -> tf.Tensor:
            variable.assign(variable * factor)
            return tf.exp(variable)

        strategy.run(grow, (tf.constant(2.0),))
        with pytest.raises(FloatingPointException) as caught:
            strategy.run(grow, (tf.constant(100.0),))
        assert (caught.value.exception, caught.value.opcode) == ("oflo", "exponential")
        np.testing.assert_array_equal(variable.numpy(), np.full(10, 2, np.float32))
        strategy.run(grow, (tf.constant(2.0),))
        np.testing.assert_array_equal(variable.numpy(), np.full(10, 4, np.float32))
