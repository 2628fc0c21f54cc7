"""Choices among numbers and NaN are those of TensorFlow's kernels, where these do not depend on the order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from ipu.ipu_strategy import IPUStrategy

SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, 1.0, 2.0, np.finfo(np.float32).min, np.finfo(np.float32).max])
Function = Callable[[tf.Tensor], Any]
SEGMENTS = np.random.default_rng(3).integers(-1, 70, 300)
CHOICES: dict[str, Function] = {
    "argmax": lambda x: tf.argmax(x, -1),
    "argmin": lambda x: tf.argmin(x, -1),
    "argmax of columns": lambda x: tf.argmax(x, 0, output_type=tf.int32),
    "argmax of integers": lambda x: tf.argmax(tf.cast(tf.math.is_nan(x), tf.int32), -1),
    "in_top_k": lambda x: tf.math.in_top_k(tf.range(300) % 7, x, 2),
    "in_top_k of targets outside": lambda x: tf.math.in_top_k(tf.range(300) % 9, x, 3),
    "accuracy": lambda x: tf.reduce_sum(
        tf.cast(tf.equal(tf.argmax(x, -1), tf.range(300, dtype=tf.int64) % 7), tf.int32)
    ),
}
SMOOTH: dict[str, Function] = {
    "reduce_max": lambda x: tf.reduce_max(x, -1),
    "reduce_min": lambda x: tf.reduce_min(x, -1),
    "maximum": lambda x: tf.maximum(x, x[::-1]),
    "minimum": lambda x: tf.minimum(x, 1.0),
    "relu": tf.nn.relu,
    "relu6": tf.nn.relu6,
    "clip_by_value": lambda x: tf.clip_by_value(x, 0.0, 1.0),
    "unsorted_segment_max": lambda x: tf.math.unsorted_segment_max(x, SEGMENTS, 71),
    "unsorted_segment_min": lambda x: tf.math.unsorted_segment_min(x, SEGMENTS, 71),
    "segments of numbers": lambda x: tf.math.unsorted_segment_max(x[:, 0], SEGMENTS, 71),
    "max_pool1d": lambda x: tf.nn.max_pool1d(x[None], 2, 2, "VALID"),
    "max_pool1d of one channel": lambda x: tf.nn.max_pool1d(x[..., None], 3, 2, "SAME"),
    "max_pool2d": lambda x: tf.nn.max_pool2d(tf.reshape(x, (5, 10, 6, 7)), 2, 2, "VALID"),
    "max_pool2d of overlapping windows": lambda x: tf.nn.max_pool2d(tf.reshape(x, (5, 10, 6, 7)), 3, 2, "SAME"),
    "max_pool2d at each position": lambda x: tf.nn.max_pool2d(tf.reshape(x, (5, 10, 14, 3)), 3, 1, "SAME"),
}


def values(dtype: str) -> tf.Tensor:
    """Rows of 7 numbers, of which more and more are special."""
    rng = np.random.default_rng(5)
    limits = tf.dtypes.as_dtype(dtype).min, tf.dtypes.as_dtype(dtype).max
    special = np.where(np.isfinite(SPECIAL), np.clip(SPECIAL, *limits), SPECIAL)
    given = rng.normal(size=(300, 7)).round(1)
    chosen = rng.random((300, 7)) < rng.random((300, 1))
    given[chosen] = rng.choice(special, int(chosen.sum()))
    return tf.cast(tf.constant(given), dtype)


def gradient_of(function: Function) -> Function:
    def gradient(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            result = function(x)
        return tape.gradient(result, x)

    return gradient


def compare(functions: dict[str, Function], dtype: str) -> None:
    """Compares all functions, in one program, with TensorFlow's kernels where the order of adding does not matter."""
    x = values(dtype)

    def all_of(x: tf.Tensor) -> dict[str, Any]:
        return {name: function(x) for name, function in functions.items()}

    with IPUStrategy().scope():
        received = IPUStrategy().run(tf.function(all_of, jit_compile=True), args=(x,))
    for name, expected in all_of(x).items():
        if dtype != "float32" and name.startswith("max_pool"):
            # With AVX512_BF16 or AVX512_FP16, TensorFlow uses oneDNN, which starts from -Inf, not the lowest number.
            expected = tf.maximum(expected, expected.dtype.min)
        got, wanted = (np.asarray(each) for each in (received[name], expected))
        if wanted.dtype.kind not in "iub":  # NumPy does not take bfloat16's NaN as equal
            got, wanted = got.astype(np.float32), wanted.astype(np.float32)
        np.testing.assert_array_equal(got, wanted, name)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_choices_are_those_of_tensorflows_kernels(dtype: str) -> None:
    known = {name: f for name, f in CHOICES.items() if dtype == "float32" or not name.startswith("in_top_k")}
    compare({**known, **SMOOTH}, dtype)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_gradients_go_where_tensorflows_kernels_send_them(dtype: str) -> None:
    compare({name: gradient_of(function) for name, function in SMOOTH.items()}, dtype)
