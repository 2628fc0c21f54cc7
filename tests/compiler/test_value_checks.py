"""Operations whose values TensorFlow's kernels check, one by one, with those kernels as the oracle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from engine.errors import ConfigurationError
from ipu.ipu_strategy import IPUStrategy

ROWS = np.arange(24.0, dtype=np.float32).reshape(6, 4)


def table() -> tf.Tensor:
    return tf.constant(ROWS)


def asserted(x: tf.Tensor) -> tf.Tensor:
    with tf.control_dependencies([tf.debugging.assert_less(x, 6, "a {brace}")]):
        return tf.identity(x)


def asserted_alone(x: tf.Tensor) -> tf.Tensor:
    tf.debugging.Assert(tf.reduce_all(x < 6), ["said", x])
    return x + 1


def in_loop(x: tf.Tensor) -> tf.Tensor:
    def body(k: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return k + 1, total + tf.gather(table(), x + k)

    return tf.while_loop(lambda k, total: k < 3, body, (0, tf.zeros([4, 4])))[1]


def in_branch(x: tf.Tensor) -> tf.Tensor:
    return tf.cond(x[0] > 3, lambda: tf.gather(table(), x), lambda: tf.zeros([4, 4]))


def nested(x: tf.Tensor) -> tf.Tensor:
    def body(k: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return k + 1, total + tf.cond(k > 1, lambda: called(x + k), lambda: tf.zeros([4, 4]))

    return tf.while_loop(lambda k, total: k < 3, body, (0, tf.zeros([4, 4])))[1]


@tf.function
def called(x: tf.Tensor) -> tf.Tensor:
    return tf.gather(table(), x)


def unused(x: tf.Tensor) -> tf.Tensor:
    tf.gather(table(), x)
    return x + 1


def pairs(x: tf.Tensor) -> tf.Tensor:
    return tf.stack([x, x - x], -1)


OK, SIX, FOUR, MINUS, ZERO = [0, 1, 2, 3], [5, 0, 6, 1], [5, 0, 4, 1], [0, 1, -1, 2], [1, 2, 0, 3]
CASES: dict[str, tuple[Callable[[tf.Tensor], Any], list[list[int]]]] = {
    "gather": (lambda x: tf.gather(table(), x), [OK, SIX, MINUS]),
    "gather along axis 1": (lambda x: tf.gather(table(), x, axis=1), [OK, FOUR]),
    "gather of batches": (lambda x: tf.gather(table()[:4], x[:, None], batch_dims=1), [OK, FOUR]),
    "gather_nd": (lambda x: tf.gather_nd(table(), pairs(x)), [OK, SIX, MINUS]),
    "gather_nd of the other component": (lambda x: tf.gather_nd(table(), pairs(x)[:, ::-1]), [OK, FOUR]),
    "scatter_nd": (lambda x: tf.scatter_nd(x[:, None], tf.ones(4), [6]), [OK, SIX, MINUS]),
    "tensor_scatter": (lambda x: tf.tensor_scatter_nd_max(table(), pairs(x), tf.ones(4)), [OK, SIX, MINUS]),
    "segments": (lambda x: tf.math.unsorted_segment_sum(tf.ones(4), x, 6), [OK, SIX, MINUS]),
    "parts": (lambda x: tf.add_n([tf.size(each) for each in tf.dynamic_partition(x, x, 5)]), [OK, SIX, MINUS]),
    "one_hot": (lambda x: tf.one_hot(x, 5), [OK, SIX, MINUS]),
    "integer division": (lambda x: 7 // x, [OK, SIX, [1, 2, 3, 4]]),
    "remainder": (lambda x: 7 % tf.cast(x, tf.int64), [ZERO, [1, 2, 3, 4]]),
    "divide_no_nan": (lambda x: tf.math.divide_no_nan(1.0, tf.cast(x, tf.float32)), [ZERO]),
    "powers": (lambda x: 2**x, [OK, MINUS]),
    "assert_less": (asserted, [OK, SIX]),
    "Assert": (asserted_alone, [OK, SIX]),
    "check_numerics": (lambda x: tf.debugging.check_numerics(1 / tf.cast(x, tf.float32), "m"), [OK, [1, 2, 3, 4]]),
    "assert_all_finite": (lambda x: tf.debugging.assert_all_finite(tf.math.log(tf.cast(x, tf.float32)), "m"), [MINUS]),
    "an element": (lambda x: table()[x[2]], [OK, SIX, MINUS, [0, 0, -7, 0]]),
    "a slice": (lambda x: tf.slice(table(), [x[2], 0], [2, 4]), [OK, FOUR, [0, 0, 5, 0]]),
    "reverse_sequence": (lambda x: tf.reverse_sequence(table()[:4], x, 1), [OK, FOUR, SIX, MINUS]),
    "bincount": (
        lambda x: tf.raw_ops.DenseBincount(input=x, size=5, weights=tf.constant([], tf.float32)),
        [OK, SIX, MINUS],
    ),
    "invert_permutation": (tf.math.invert_permutation, [OK, FOUR, MINUS]),
    "confusion_matrix": (lambda x: tf.math.confusion_matrix(x, x, 5), [OK, SIX, MINUS]),
    "sparse to dense": (
        lambda x: tf.sparse.to_dense(tf.SparseTensor(tf.cast(x[:, None], tf.int64), tf.ones(4), [6])),
        [OK, [1, 2, 3, 6]],
    ),
    "in_top_k": (lambda x: tf.math.in_top_k(x, table()[:4], 2), [OK, SIX, MINUS]),
    "a loop": (in_loop, [OK, FOUR]),
    "a branch": (in_branch, [OK, SIX, [0, 0, 6, 0]]),
    "a function": (called, [OK, SIX]),
    "a function in a branch in a loop": (nested, [OK, FOUR, [0, 5, 0, 0], [0, 3, 0, 0]]),
    "an operation without use": (unused, [SIX]),
    "vectorized_map": (lambda x: tf.vectorized_map(lambda k: tf.gather(table(), k), x), [OK, SIX]),
    "boolean_mask": (
        lambda x: tf.reduce_sum(tf.gather(table(), tf.boolean_mask(x, x < 100))),
        [OK, SIX, [200, 0, 1, 2]],
    ),
}


def result_of(run: Callable[[], Any]) -> Any:
    """The result as an array, or TensorFlow's error."""
    try:
        return np.asarray(run())
    except tf.errors.InvalidArgumentError as error:
        return error


@pytest.mark.sample(14)
@pytest.mark.parametrize("name", CASES)
def test_an_operation_raises_where_tensorflow_does(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTWARE_IPU_VALUE_CHECKS", "all")
    function, inputs = CASES[name]
    compiled, plain, strategy = tf.function(function, jit_compile=True), tf.function(function), IPUStrategy()
    for given in inputs:
        x = tf.constant(given)
        expected = result_of(lambda: plain(x))  # noqa: B023  (called at once)
        with strategy.scope():
            received = result_of(lambda: strategy.run(compiled, args=(x,)))  # noqa: B023
        assert isinstance(expected, Exception) == isinstance(received, Exception), (given, expected, received)
        if not isinstance(expected, Exception):
            np.testing.assert_allclose(received, expected, rtol=1e-6)


def test_programs_of_the_ipu_api_are_not_checked_unless_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    x, strategy = tf.constant(SIX), IPUStrategy()
    with strategy.scope():
        last = strategy.run(tf.function(lambda x: tf.gather(table(), x), jit_compile=True), args=(x,))
    np.testing.assert_array_equal(last[2], ROWS[5])
    monkeypatch.setenv("SOFTWARE_IPU_VALUE_CHECKS", "some")
    with strategy.scope(), pytest.raises(ConfigurationError, match=r"keras, all or none .* 'some'"):
        strategy.run(tf.function(lambda x: tf.gather(table(), x), jit_compile=True), args=(x,))


def test_an_assertion_says_its_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTWARE_IPU_VALUE_CHECKS", "all")
    strategy = IPUStrategy()
    for function, text in ((asserted, r"\[a {brace}\] \[Condition x < y"), (asserted_alone, r"\[said\]")):
        with strategy.scope(), pytest.raises(tf.errors.InvalidArgumentError, match=text):
            strategy.run(tf.function(function, jit_compile=True), args=(tf.constant(SIX),))
