"""Results of sort and batch normalisation on the engine are those of XLA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from engine.compile import compile_module
from tests.compiler.test_hlo import imported
from tests.engine.running import buffers

SPECIAL = [0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1, 2, -1, 1, 0, -0.0, 60000]
TYPES = ["float32", "float64", "float16", "bfloat16", "int8", "int32", "int64", "uint8", "uint32"]


def compare(function: Callable[..., Any], arguments: list[np.ndarray], tolerance: float = 0.0) -> None:
    """Bit for bit where the tolerance is 0, NaNs aside."""
    module = imported(function, *arguments)
    results = compile_module(module, ["variable"] * len(arguments), {}).run(1, [], buffers(arguments))
    expected = tf.nest.flatten(tf.function(function, jit_compile=True)(*map(tf.constant, arguments)))
    assert len(results) == len(expected)
    for result, tensor in zip(results, expected, strict=True):
        value = tensor.numpy()
        assert (result.dtype, result.shape) == (value.dtype, value.shape)
        wide = [x.astype(np.float64) for x in (result, value)]
        if not tolerance:
            np.testing.assert_array_equal(*wide)
            np.testing.assert_array_equal(*(np.signbit(x[~np.isnan(x)]) for x in wide))
        else:
            np.testing.assert_allclose(*wide, rtol=tolerance, atol=tolerance * np.abs(wide[1]).max())


def values_of(kind: str, *dimensions: int) -> np.ndarray:
    values = np.random.default_rng(0).integers(0, 50, dimensions)
    dtype = np.dtype(ml_dtypes.bfloat16 if kind == "bfloat16" else kind)
    if dtype.kind in "iu":
        values[0, :2] = np.iinfo(dtype).min % 100, np.iinfo(dtype).max % 100
        return values.astype(dtype)
    result = values.astype(dtype)
    # The bfloat16 program of top_k packs values and places into integers, where NaNs do not survive.
    special = SPECIAL if kind != "bfloat16" else [s for s in SPECIAL if not np.isnan(s)]
    result[1, : len(special)] = np.array(special).astype(dtype)
    return result


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", TYPES)
def test_sorts_and_searches(kind: str) -> None:
    compare(lambda x: [tf.sort(x), tf.argsort(x, stable=True)], [values_of(kind, 3, 61)])
    compare(lambda x: [tf.sort(x, direction="DESCENDING"), *tf.math.top_k(x, 60)], [values_of(kind, 3, 61)])
    compare(lambda x: [*tf.math.top_k(x, 3)], [values_of(kind, 3, 500)])
    compare(lambda x: [keras.ops.sort(x, axis=0), keras.ops.argsort(x, axis=0)], [values_of(kind, 70, 20)])


def test_what_is_built_on_sorts() -> None:
    x = np.random.default_rng(1).normal(size=(3, 21)).astype(np.float32)
    compare(lambda x: keras.ops.median(x, axis=1), [x], 1e-6)
    compare(lambda x: keras.ops.quantile(x, 0.3, axis=0), [x], 1e-6)
    compare(lambda x: tf.math.invert_permutation(tf.argsort(x[0])), [x])
    compare(lambda x: tf.searchsorted(tf.sort(x), x), [x])
    compare(lambda x: tf.math.in_top_k(tf.constant([1, 2, 20]), x, 3), [x])


def normalized(x: tf.Tensor, scale: tf.Tensor, offset: tf.Tensor) -> Any:
    with tf.GradientTape() as tape:
        tape.watch([x, scale, offset])
        y, mean, variance = tf.compat.v1.nn.fused_batch_norm(x, scale, offset, epsilon=1e-2, is_training=True)
        loss = tf.reduce_sum(tf.sin(y) * y)
    return y, mean, variance, tape.gradient(loss, [x, scale, offset])


def inferred(x: tf.Tensor, scale: tf.Tensor, offset: tf.Tensor) -> tf.Tensor:
    return tf.compat.v1.nn.fused_batch_norm(x, scale, offset, offset, scale * scale, is_training=False)[0]


@pytest.mark.parametrize(
    ("kind", "tolerance"), [("float32", 1e-5), pytest.param("float16", 4e-3, marks=pytest.mark.explore)]
)
def test_batch_normalization(kind: str, tolerance: float) -> None:
    rng = np.random.default_rng(2)
    x = (rng.normal(size=(4, 9, 8, 5)) + 3).astype(kind)
    scale, offset = (rng.normal(size=5).astype(np.float32) for _ in range(2))
    compare(normalized, [x, scale, offset], tolerance)
    compare(inferred, [x, scale, offset], tolerance)
