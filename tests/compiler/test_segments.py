"""Segments, counts of bins and sparse tensors, whose operations XLA lacks, beside TensorFlow's kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from engine.errors import UnsupportedOperation
from ipu.ipu_compiler import compile as compile_program
from ipu.ipu_strategy import IPUStrategy

v1 = tf.compat.v1
IDS, ROWS = [0, 0, 1, 1, 1, 3], [0, 2, 2, 4, 1, 5]
PLACES = [[0, 0], [0, 2], [1, 1], [3, 4]]
KINDS = ["max", "mean", "min", "prod", "sum"]
GENERATOR = np.random.default_rng(0)
DATA = GENERATOR.normal(size=(6, 3)).astype(np.float32)
VALUES = GENERATOR.normal(size=4).astype(np.float32)


def check(function: Callable[..., Any], *given: Any, tolerance: float = 1e-5, gradients: bool = True) -> None:
    """Asserts that a function has the results and the gradients, where it has any, of TensorFlow's kernels."""

    def with_gradients(*arguments: tf.Tensor) -> list[Any]:
        if not gradients:
            return list(function(*arguments))
        with tf.GradientTape() as tape:
            tape.watch(arguments)
            results = [each for each in tf.nest.flatten(function(*arguments)) if each is not None]
            floats = [tf.cast(each, tf.float32) for each in results if each.dtype.is_floating]
            loss = tf.add_n([tf.reduce_sum(tf.sin(each)) for each in floats] or [tf.zeros([])])
        derived = tape.gradient(loss, arguments, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return [*results, *map(tf.convert_to_tensor, derived)]

    arguments = [tf.constant(each) for each in given]
    expected = tf.function(with_gradients)(*arguments)
    with IPUStrategy().scope() as strategy:
        found = strategy.run(tf.function(with_gradients, jit_compile=True), arguments)
    assert [each.dtype for each in found] == [each.dtype for each in expected]
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(tf.cast(one, tf.float64), tf.cast(other, tf.float64), rtol=tolerance, atol=tolerance)


def test_segments_of_constant_ids() -> None:
    check(lambda x: [getattr(tf.math, f"segment_{kind}")(x, IDS) for kind in KINDS], DATA)
    check(
        lambda x: [getattr(tf.math, f"segment_{kind}")(tf.cast(x, tf.int32), np.array(IDS)) for kind in ("max", "sum")],
        DATA * 9,
    )


@pytest.mark.parametrize("dtype, tolerance", [(tf.float32, 1e-5), (tf.float16, 2e-3)])
def test_gathered_segments(dtype: tf.DType, tolerance: float) -> None:
    def function(x: tf.Tensor, ids: tf.Tensor) -> list[tf.Tensor]:
        x = tf.cast(x, dtype)
        reductions = [tf.sparse.segment_sum, tf.sparse.segment_mean, tf.sparse.segment_sqrt_n]
        static = [each(x, ROWS, tf.constant(IDS)) for each in reductions]
        return static + [each(x, ROWS, ids, num_segments=6) for each in reductions]

    check(function, DATA, np.array(IDS, np.int32), tolerance=tolerance)


def test_segments_in_loops_branches_and_captured_ids() -> None:
    ids = tf.constant(IDS)

    def function(x: tf.Tensor, which: tf.Tensor) -> tf.Tensor:
        summed = tf.while_loop(lambda k, _: k < 2, lambda k, y: (k + 1, y + tf.math.segment_mean(y, range(6))), (0, x))
        return tf.cond(which > 0, lambda: tf.math.segment_sum(summed[1], ids), lambda: tf.zeros([4, 3]))

    check(function, DATA, np.float32(1))


def test_segments_of_version_1() -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [6, 3])
        (found,) = compile_program(lambda x: [v1.segment_mean(x, IDS)], [x])
        given = {x: DATA}
        np.testing.assert_allclose(
            session.run(found, given), session.run(v1.segment_mean(x, IDS), given), rtol=1e-6, atol=1e-6
        )


def test_ids_that_are_computed_or_unsorted_are_errors() -> None:
    with IPUStrategy().scope() as strategy:
        for run, advice in [
            (lambda i: tf.math.segment_mean(DATA, i), r"SegmentMean.* tf\.math\.unsorted_segment_\* with num_segments"),
            (lambda i: tf.sparse.segment_mean(DATA, ROWS, i), "SparseSegmentMean.* give the function num_segments"),
        ]:
            with pytest.raises(UnsupportedOperation, match=advice):
                strategy.run(tf.function(run, jit_compile=True), [tf.constant(IDS)])
        unsorted = tf.function(lambda x: tf.math.segment_sum(x, [1, 0, 0, 0, 0, 0]), jit_compile=True)
        with pytest.raises(ValueError, match=r"in ascending order. Received: \[1, 0"):
            strategy.run(unsorted, [tf.constant(DATA)])


def test_histograms_and_counts() -> None:
    beyond = np.array([np.inf, -np.inf, 0, -1, 1, 0.99999994, *GENERATOR.normal(size=50)], np.float32)
    bins = np.array([[0, 1], [4, 4]], np.int32)

    def function(x: tf.Tensor, limits: tf.Tensor, bins: tf.Tensor, weights: tf.Tensor) -> list[tf.Tensor]:
        return [
            tf.histogram_fixed_width(x, [-1.0, 1.0], 7),
            tf.histogram_fixed_width(x, limits, 7, tf.int64),
            tf.histogram_fixed_width(tf.cast(x[6:] * 3, tf.int32), [-4, 4], 3),
            tf.math.bincount(bins, minlength=5, maxlength=5),
            tf.math.bincount(tf.reshape(bins, [-1]), weights, minlength=3, maxlength=3),
            tf.math.bincount(bins, minlength=6, maxlength=6, axis=-1, binary_output=True),
        ]

    check(function, beyond, np.array([-1, 2], np.float32), bins, VALUES, gradients=False)


def test_sparse_tensors() -> None:
    def function(values: tf.Tensor, dense: tf.Tensor, places: tf.Tensor) -> list[tf.Tensor]:
        found = []
        for indices in (tf.constant(PLACES, tf.int64), places):
            sparse = tf.SparseTensor(indices, values, [4, 5])
            found += [tf.sparse.reduce_sum(sparse), tf.sparse.reduce_sum(sparse, axis=1, keepdims=True)]
            found += [tf.sparse.reduce_sum(sparse, axis=-2)]
            found += [tf.sparse.softmax(sparse).values, tf.sparse.add(sparse, dense)]
            found += [(sparse * dense).values, (sparse / tf.exp(dense)).values, sparse.__mul__(dense[0]).values]
            found += [tf.sparse.to_dense(tf.sparse.transpose(sparse))]
        return found

    dense = GENERATOR.normal(size=(4, 5)).astype(np.float32)
    check(function, VALUES, dense, np.array(PLACES), gradients=False)
    check(lambda v, d: function(v, d, tf.constant(PLACES, tf.int64))[:4], VALUES, dense)
    check(lambda v: [tf.sparse.reduce_max(tf.SparseTensor(PLACES, v, [4, 5]), axis=1)], VALUES, gradients=False)


def test_joined_sparse_tensors() -> None:
    others = [[0, 0], [1, 1], [1, 3], [3, 4]]

    def dense(x: tf.SparseTensor) -> list[tf.Tensor]:
        return [tf.sparse.to_dense(x), x.values, x.indices, x.dense_shape]

    def function(values: tf.Tensor, more: tf.Tensor, places: tf.Tensor) -> list[tf.Tensor]:
        one, other = tf.SparseTensor(PLACES, values, [4, 5]), tf.SparseTensor(others, more, [4, 5])
        computed = tf.SparseTensor(places, more, [4, 5])
        found = [tf.sparse.concat(axis, [one, other, one]) for axis in (0, -1)]
        found += [tf.sparse.concat(1, [computed, one]), tf.sparse.slice(one, [1, 0], [9, 3])]
        found += [tf.sparse.slice(found[1], [0, 2], [4, 6]), tf.sparse.slice(one, [2, 0], [1, 5])]
        found += [tf.sparse.add(one, other), v1.sparse_add(other, one)]
        found += [tf.sparse.reshape(one, [-1, 2]), tf.sparse.reshape(computed, [2, 5, -1])]
        return [each for sparse in found for each in dense(sparse)]

    check(function, VALUES, VALUES[::-1] * 2, np.array(others))

    def greatest(values: tf.Tensor) -> list[tf.Tensor]:
        given = tf.SparseTensor(PLACES, values, [4, 5]), tf.SparseTensor(others, values[::-1], [4, 5])
        found = [by(*given) for by in (tf.sparse.maximum, tf.sparse.minimum)]
        found += tf.sparse.split(sp_input=given[0], num_split=3, axis=1)
        return [each for sparse in found for each in dense(sparse)]

    check(greatest, VALUES, gradients=False)


@pytest.mark.parametrize("weighted", [True, False])
def test_sparse_lookups(weighted: bool) -> None:
    def function(table: tf.Tensor, weights: tf.Tensor, ids: tf.Tensor, places: tf.Tensor) -> list[tf.Tensor]:
        found = []
        for indices in (tf.constant(PLACES, tf.int64), places):
            sparse = tf.SparseTensor(indices, ids, [4, 5])
            given = tf.SparseTensor(indices, weights, [4, 5]) if weighted else None
            found += [tf.nn.embedding_lookup_sparse(table, sparse, given, each) for each in ("sum", "mean", "sqrtn")]
            found.append(v1.nn.embedding_lookup_sparse(table, sparse, given, max_norm=0.5))
        return found

    table = GENERATOR.normal(size=(7, 3)).astype(np.float32)
    check(function, table, np.abs(VALUES), np.array([1, 3, 3, 6]), np.array(PLACES))


def test_unique_values_and_their_counts() -> None:
    def function(x: tf.Tensor) -> list[tf.Tensor]:
        found, places, counts = tf.unique_with_counts(x, tf.int64)
        stacked = v1.parallel_stack([x, 2 * x])
        return [tf.gather(counts, places), places, tf.reduce_max(counts), tf.reduce_sum(found), tf.size(found), stacked]

    check(function, np.array([3, 1, 3, 3, 7, 1]), gradients=False)


def test_euclidean_norms() -> None:
    def function(x: tf.Tensor) -> list[tf.Tensor]:
        half, norm = tf.cast(x * 4, tf.float16), tf.math.reduce_euclidean_norm
        return [norm(x), norm(x, 1, keepdims=True), norm(tf.complex(x, x), 0)] + [tf.cast(norm(half, 0), tf.float32)]

    check(function, DATA, tolerance=1e-3, gradients=False)
    check(lambda x: function(x)[:2], DATA)


def test_arrays_with_unequal_elements() -> None:
    def function(x: tf.Tensor) -> list[tf.Tensor]:
        array = tf.TensorArray(tf.float32, 3, clear_after_read=False, infer_shape=False).split(x, [1, 3, 2])
        written = array.write(1, x[:1] * 2.0)
        of_writes = tf.TensorArray(tf.float32, 2, infer_shape=False).write(1, x[2:]).write(0, x[:2])
        return [array.read(1), array.concat(), written.concat(), written.read(2), of_writes.concat()]

    check(function, DATA, gradients=False)
    check(lambda x: [tf.TensorArray(tf.float32, 3, infer_shape=False).split(x, [1, 3, 2]).read(1)], DATA)

    def in_loop(x: tf.Tensor) -> list[tf.Tensor]:
        return list(
            tf.while_loop(
                lambda k, _: k < 2, lambda k, y: (k + 1, y + tf.ensure_shape(function(x)[0], [3, 3])), (0, x[:3])
            )
        )

    check(in_loop, DATA, gradients=False)


def test_unequal_elements_by_a_computed_index_are_refused() -> None:
    def function(x: tf.Tensor, index: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.TensorArray(tf.float32, 3, infer_shape=False).split(x, [1, 3, 2]).read(index))

    with (
        IPUStrategy().scope() as strategy,
        pytest.raises(UnsupportedOperation, match="All lengths have to be the same"),
    ):
        strategy.run(tf.function(function, jit_compile=True), [tf.constant(DATA), tf.constant(1)])


@pytest.mark.parametrize("most", [0, 1, None])
def test_gradients_of_loops_without_iterations(most: int | None) -> None:
    count = 0 if most is None else 3
    check(
        lambda x: tf.while_loop(lambda k, _: k < count, lambda k, y: (k + 1, y * y), (0, x), maximum_iterations=most)[
            1
        ],
        DATA,
    )
