"""Safe look-ups of sparse ids and the feature columns of version 1 beside TensorFlow's kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from ipu.ipu_compiler import compile as compile_program
from tests.compiler.test_segments import check

v1 = tf.compat.v1
fc = tf.feature_column
GENERATOR = np.random.default_rng(0)
TABLE = GENERATOR.normal(size=(7, 3)).astype(np.float32)
PLACES = np.array([[0, 0, 1], [0, 0, 2], [0, 1, 0], [1, 1, 0], [1, 1, 1]])
IDS = np.array([3, -1, 0, -1, -2])
WEIGHTS = np.array([0.5, 2.0, -1.0, 1.0, 3.0], np.float32)


@pytest.mark.parametrize("combiner, default_id", [("mean", None), ("sqrtn", 5), ("sum", None)])
def test_ids_left_out_and_empty_rows(combiner: str, default_id: int | None) -> None:
    """Ids below 0 are left out, and those whose weights are not positive unless they are summed."""

    def function(table: tf.Tensor, ids: tf.Tensor, places: tf.Tensor, weights: tf.Tensor) -> list[tf.Tensor]:
        sparse = tf.SparseTensor(places, ids, tf.cast(tf.stack([2, 2, tf.shape(table)[1]]), tf.int64))
        amounts = tf.SparseTensor(places, weights, [2, 2, 3])
        look_up = v1.nn.safe_embedding_lookup_sparse
        return [
            look_up(table, sparse, amounts, combiner, default_id),
            look_up(table, sparse, None, combiner, default_id, max_norm=0.5),
        ]

    check(function, TABLE, IDS, PLACES, WEIGHTS)


def columns(features: dict[str, tf.Tensor]) -> tf.Tensor:
    age = fc.numeric_column("age")
    groups, job = fc.bucketized_column(age, [-1.0, 0.0, 1.0]), fc.categorical_column_with_identity("job", 6)
    embedded = fc.embedding_column(job, 3, initializer=v1.constant_initializer(TABLE[:6]), combiner="sqrtn")
    crossed = fc.embedding_column(groups, 2, initializer=v1.constant_initializer(TABLE[:4, :2]))
    return v1.feature_column.input_layer(features, [age, groups, fc.indicator_column(job), embedded, crossed])


def linear(features: dict[str, tf.Tensor]) -> tf.Tensor:
    groups = fc.bucketized_column(fc.numeric_column("age"), [-1.0, 0.0, 1.0])
    job = fc.categorical_column_with_identity("job", 6)
    return v1.feature_column.linear_model(features, [groups, job], sparse_combiner="mean")


OPTIMIZERS = {
    "adam": lambda: v1.train.AdamOptimizer(0.02),
    "momentum": lambda: v1.train.MomentumOptimizer(0.02, 0.5),
    "rms": lambda: v1.train.RMSPropOptimizer(0.02),
}


@pytest.mark.filterwarnings("ignore:.*add_variable")
@pytest.mark.parametrize("layer, optimizer", [(columns, "momentum"), (linear, "rms")])
def test_training_of_feature_columns(layer: Callable[..., Any], optimizer: str) -> None:
    """Optimizers of sparse gradients update the rows of TensorFlow's look-ups and no others; -1 stands for no job."""
    ages = GENERATOR.normal(size=(3, 5, 1)).astype(np.float32)
    jobs = GENERATOR.integers(1, 6, size=(3, 5, 2))
    jobs[:, 1, 1], jobs[2:, 3] = -1, -1
    same_training(lambda age, job: layer({"age": age, "job": job}), optimizer, ages, jobs)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_training_of_partitioned_tables(optimizer: str) -> None:
    """Each part's rows are as many as the ids that fall into it; the last batch has none for some parts."""

    def rows(ids: tf.Tensor) -> tf.Tensor:
        first = v1.constant_initializer(1.0)
        table = v1.get_variable("table", [10, 3], initializer=first, partitioner=v1.fixed_size_partitioner(3))
        return tf.nn.embedding_lookup(table, ids)

    same_training(rows, optimizer, np.array([[1, 9, 1, 4], [0, 5, 5, 6], [0, 1, 1, 0]]))


def same_training(layer: Callable[..., tf.Tensor], optimizer: str, *batches: np.ndarray) -> None:
    """Asserts that losses and all variables are those of TensorFlow's kernels."""

    def step(*batch: tf.Tensor) -> Any:
        with v1.variable_scope("model", use_resource=True):
            loss = tf.reduce_sum((layer(*batch) - 0.5) ** 2)
        return loss, OPTIMIZERS[optimizer]().minimize(loss)

    def trained(is_compiled: bool) -> list[Any]:
        with tf.Graph().as_default(), v1.Session() as session:
            fed = [v1.placeholder(each.dtype, each.shape[1:]) for each in batches]
            run = compile_program(step, fed) if is_compiled else step(*fed)
            session.run(v1.global_variables_initializer())
            losses = [session.run(run, dict(zip(fed, row, strict=True)))[0] for row in zip(*batches, strict=True)]
            return [losses, *session.run(v1.global_variables())]

    for found, expected in zip(trained(True), trained(False), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
