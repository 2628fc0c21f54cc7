"""Sizes known only at run time: boolean_mask, where and computed slices have TensorFlow's results without XLA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from engine.errors import UnsupportedOperation
from engine.evaluate import evaluate
from engine.passes.dynamic_dimension_rules import index_after_reshape
from tests.compiler.hlo_cases import normal
from tests.compiler.test_hlo import imported
from tests.engine.running import assert_near, check

ROWS = normal(7, 3)
CHOSEN = {
    "some": np.array([True, False, False, True, True, False, True]),
    "none": np.zeros(7, bool),
    "first": np.arange(7) == 0,
    "last": np.arange(7) == 6,
    "all": np.ones(7, bool),
}


def with_gradient(function: Callable[..., tf.Tensor]) -> Callable[..., Any]:
    """A number and its gradient with respect to the first argument."""

    def both(x: tf.Tensor, *others: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = function(x, *others)
        return value, tf.convert_to_tensor(tape.gradient(value, x))

    return both


def rows(x: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    return tf.boolean_mask(x, mask)


def behind(x: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    return tf.concat([rows(x, mask), x[2:4], rows(x[:5], mask[1:6]), rows(x, mask)], axis=0)


def entropy(x: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    labels = tf.boolean_mask(tf.range(7) % 3, mask)
    return tf.reduce_sum(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, rows(x, mask)))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "mean": with_gradient(lambda x, m: tf.math.divide_no_nan(tf.reduce_sum(rows(x, m)), tf.cast(tf.size(m), x.dtype))),
    "mean of a mean": lambda x, m: tf.reduce_sum(tf.reduce_mean(rows(x, m), axis=1)),
    "size": lambda x, m: tf.shape(rows(x, m))[0] * 2,
    "sum of columns": with_gradient(lambda x, m: tf.reduce_sum(tf.exp(tf.reduce_sum(rows(x, m), axis=0)))),
    "largest": lambda x, m: (tf.reduce_max(rows(x, m)), tf.reduce_min(rows(x, m), 0), tf.reduce_prod(rows(x, m))),
    "product": with_gradient(lambda x, m: tf.reduce_sum(tf.tanh(tf.matmul(rows(x, m), x[:3])))),
    "product over rows": with_gradient(lambda x, m: tf.reduce_sum(tf.matmul(rows(x, m), rows(x, m), True) ** 2)),
    "quotients by zero": lambda x, m: tf.reduce_sum(rows(x, m) / tf.cast(rows(tf.range(7), m)[:, None] + 1, x.dtype)),
    "normalized": with_gradient(lambda x, m: tf.reduce_sum(tf.nn.softmax(rows(x, m)) * rows(x, m))),
    "cross entropy": with_gradient(entropy),
    "places": lambda x, m: tf.reduce_sum(tf.where(m)),
    "places and back": lambda x, m: tf.scatter_nd(tf.where(m), rows(x, m), tf.constant([7, 3], tf.int64)),
    "gathered": with_gradient(lambda x, m: tf.reduce_sum(tf.gather(x, tf.where(m)[:, 0]) ** 2)),
    "flat": lambda x, m: tf.reduce_max(tf.reshape(rows(x, m), [-1])),
    "transposed": lambda x, m: tf.reduce_sum(tf.transpose(rows(x, m)) * tf.constant([[1.0], [2.0], [3.0]]), axis=1),
    "side by side": lambda x, m: tf.reduce_sum(tf.concat([rows(x, m), 2 * rows(x, m)], axis=1), axis=0),
    "behind each other": lambda x, m: tf.reduce_sum(tf.exp(behind(x, m)), axis=0),
    "rows of places behind each other": with_gradient(
        lambda x, m: tf.reduce_sum(tf.sin(tf.gather(x, behind(tf.range(7), m))))
    ),
    "winners": lambda x, m: tf.reduce_sum(tf.argmax(rows(x, m), axis=1)),
    "sorted within rows": lambda x, m: tf.reduce_sum(tf.sort(rows(x, m), axis=1), axis=0),
    "sorted": lambda x, m: tf.reduce_sum(tf.sort(rows(x, m)[:, 0]) * tf.cumsum(tf.ones_like(rows(x, m)[:, 0]))),
    "sorted rows": lambda x, m: tf.reduce_sum(tf.gather(x, tf.argsort(rows(tf.range(7), m) % 4, stable=True)), axis=0),
    "running sums": with_gradient(lambda x, m: tf.reduce_sum(tf.sin(tf.cumsum(rows(x, m), axis=0)))),
    "running products from the end": lambda x, m: tf.reduce_sum(
        tf.math.cumprod(rows(x, m), axis=0, reverse=True), axis=0
    ),
    "of numbers": lambda x, m: tf.reduce_sum(tf.boolean_mask(x, x > 0)),
    "segments": lambda x, m: tf.math.unsorted_segment_sum(rows(x, m), rows(tf.range(7) % 2, m), 2),
}


@pytest.mark.sample(7)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_masks(name: str) -> None:
    same(FUNCTIONS[name], *((ROWS, chosen) for chosen in CHOSEN.values()))


def test_slices_of_a_computed_size() -> None:
    """Slices end within the array: beyond its end XLA counts zeros, where TensorFlow counts nothing."""
    places = ((4, 3), (0, 3), (0, 7), (2, 0), (6, 1), (7, 0))
    arguments = ((ROWS, np.int32(start), np.int32(size)) for start, size in places)
    same(lambda x, start, size: tf.reduce_sum(tf.exp(x[start : start + size]), axis=0), *arguments)


def same(function: Callable[..., Any], *several: Any) -> None:
    """Compares with TensorFlow: the definitions for all arguments, and the engine for the first ones."""
    first = [np.asarray(argument) for argument in several[0]]
    module = imported(function, *first)
    assert all(i.opcode != "set-dimension-size" for c in module.computations() for i in c.instructions)
    for arguments in several:
        values = [np.asarray(argument) for argument in arguments]
        expected = [each.numpy() for each in tf.nest.flatten(function(*map(tf.constant, values)))]
        for result, value in zip(evaluate(module, values), expected, strict=True):
            assert_near(result, value)
    check(module, first)


@pytest.mark.parametrize(
    "function",
    [
        rows,
        lambda x, m: tf.reduce_sum(tf.math.top_k(rows(x, m)[:, 0], 3)[0]),
        lambda x, m: tf.reduce_sum(tf.nn.max_pool1d(rows(x, m)[None], 2, 2, "VALID")),
        lambda x, m: tf.reduce_sum(tf.reverse(rows(x, m), [0]) * ROWS[0]),
        lambda x, m: tf.reduce_sum(tf.image.resize(rows(tf.reshape(x, [7, 3, 1]), m), [5, 3])),
    ],
    ids=["result", "greatest", "pooling", "reverse", "resize"],
)
def test_what_would_mix_in_the_rest_is_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(UnsupportedOperation, match=r"(?s)known only at run time.*mask in place of boolean_mask"):
        imported(function, ROWS, CHOSEN["some"])


@pytest.mark.parametrize(
    ("before", "after", "dimension", "expected"),
    [
        ((8, 1), (8,), 0, (0, 1, 1)),
        ((8,), (1, 8), 0, (1, 1, 1)),
        ((4, 2, 8), (8, 8), 2, (1, 1, 1)),
        ((8, 3), (24,), 0, (0, 3, 1)),
        ((5, 8, 3, 2), (5, 24, 2), 1, (1, 3, 1)),
        ((24,), (8, 3), 0, (0, 1, 3)),
        ((2, 8), (16,), 1, None),
        ((1, 3), (3,), 0, (0, 3, 1)),
        ((1,), (), 0, None),
    ],
)
def test_where_a_dimension_goes(before: Any, after: Any, dimension: int, expected: Any) -> None:
    assert index_after_reshape(before, after, dimension) == expected


def test_what_counts_stays_at_the_start() -> None:
    """The counted elements, in their order, are the first ones of the new dimension, as in NumPy."""
    for before, after, dimension in [((8, 3), (24,), 0), ((5, 8, 3), (5, 24), 1), ((6, 4), (3, 2, 4), 0)]:
        new, factor, divisor = index_after_reshape(before, after, dimension) or (0, 0, 0)
        x = np.arange(np.prod(before)).reshape(before)
        for size in range(0, before[dimension] + 1, divisor):
            kept = x.take(range(size), axis=dimension)
            np.testing.assert_array_equal(
                x.reshape(after).take(range(size * factor // divisor), axis=new).ravel(), kept.ravel()
            )
