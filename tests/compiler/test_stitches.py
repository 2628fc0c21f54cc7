"""Rows that are divided and joined again, whose indices XLA must know, beside TensorFlow's kernels."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from engine.errors import UnsupportedOperation
from ipu.ipu_strategy import IPUStrategy
from tests.compiler.test_segments import check

v1 = tf.compat.v1
GENERATOR = np.random.default_rng(0)
ROWS = GENERATOR.normal(size=(6, 2, 3)).astype(np.float32)
KINDS = np.array([[0, 2], [2, 2], [0, 0], [2, 0], [2, 2], [0, 2]], np.int32)


def test_each_kind_of_row_has_an_operation_of_its_own() -> None:
    def function(x: tf.Tensor, kinds: tf.Tensor) -> list[tf.Tensor]:
        found = []
        for rows, of in ((x[:, 0], kinds[:, 0]), (x, kinds), (x, kinds[:, 1])):
            places = tf.reshape(tf.range(tf.size(of)), tf.shape(of))
            parts, indices = (tf.dynamic_partition(each, of, 3) for each in (rows, places))
            found.append(tf.dynamic_stitch(indices, [parts[0] * 2.0, parts[1], tf.sin(parts[2])]))
        more = [tf.constant(6), *tf.dynamic_partition(tf.constant([5, 0, 4, 3, 1, 2]), kinds[:, 0], 3)]
        return [*found, tf.dynamic_stitch(more, [x[1, 0], *tf.dynamic_partition(x[:, 1], kinds[:, 0], 3)])]

    check(function, ROWS, KINDS)


def test_divisions_in_loops_and_branches() -> None:
    def divided(x: tf.Tensor, kinds: tf.Tensor) -> tf.Tensor:
        few, many = tf.dynamic_partition(x, kinds, 2)
        return x * 0.1 * (tf.reduce_sum(tf.sin(few)) - tf.reduce_sum(tf.cos(many)))

    def loop(x: tf.Tensor, kinds: tf.Tensor) -> list[tf.Tensor]:
        def iteration(k: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            of = tf.cast(kinds[:, 0] > k, tf.int32)
            places = tf.dynamic_partition(tf.range(6), of, 2)
            rows = tf.dynamic_partition(divided(y, of), 1 - of, 2)
            return k + 1, tf.ensure_shape(tf.dynamic_stitch(places, rows[::-1]), y.shape)

        return list(tf.while_loop(lambda k, _: k < 3, iteration, (0, x)))

    check(loop, ROWS, KINDS, gradients=False)
    check(
        lambda x, kinds: [tf.cond(kinds[0, 0] > k, lambda: x, lambda: divided(x, kinds[:, 0] // 2)) for k in (-1, 1)],
        *(ROWS, KINDS),
        gradients=False,
    )


@pytest.mark.parametrize("strategy", ["div", "mod"])
def test_look_ups_in_partitioned_tables(strategy: str) -> None:
    ids = np.array([[4, 0, 6], [6, 5, 6]], np.int32)

    def function(table: tf.Tensor, ids: tf.Tensor) -> list[tf.Tensor]:
        parts = [table[:3], table[3:5], table[5:]] if strategy == "div" else [table[k::3] for k in range(3)]
        sparse = tf.SparseTensor([[0, 0], [0, 1], [1, 0], [1, 2], [1, 3], [2, 0]], tf.reshape(ids, [-1]), [3, 4])
        return [
            v1.nn.embedding_lookup(parts, ids, strategy),
            v1.nn.embedding_lookup(parts, ids, strategy, max_norm=1.0),
            v1.nn.embedding_lookup_sparse(parts, sparse, None, strategy, combiner="mean"),
        ]

    check(function, GENERATOR.normal(size=(7, 3)).astype(np.float32), ids)


def test_computed_indices_without_a_known_greatest_are_refused() -> None:
    def function(x: tf.Tensor, kinds: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.dynamic_stitch([kinds[:, 0]], [x]))

    with IPUStrategy().scope() as strategy, pytest.raises(UnsupportedOperation, match="DynamicStitch"):
        strategy.run(tf.function(function, jit_compile=True), [tf.constant(ROWS), tf.constant(KINDS)])
