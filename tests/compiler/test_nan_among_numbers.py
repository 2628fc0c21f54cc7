"""Choices among numbers and NaN: what TensorFlow's kernels choose, where their choice does not depend on the order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from ipu.ipu_strategy import IPUStrategy

SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, 2.0, np.finfo(np.float32).min, np.finfo(np.float32).max])
CHOICES: dict[str, Callable[[tf.Tensor], Any]] = {
    "argmax": lambda x: tf.argmax(x, -1),
    "argmin": lambda x: tf.argmin(x, -1),
    "argmax of columns": lambda x: tf.argmax(x, 0, output_type=tf.int32),
    "argmax of integers": lambda x: tf.argmax(tf.cast(tf.math.is_nan(x), tf.int32), -1),
    "in_top_k": lambda x: tf.math.in_top_k(tf.range(300) % 7, x, 2),
    "in_top_k of targets outside": lambda x: tf.math.in_top_k(tf.range(300) % 9, x, 3),
    "accuracy": lambda x: tf.reduce_sum(
        tf.cast(tf.equal(tf.argmax(x, -1), tf.range(300, dtype=tf.int64) % 7), tf.int32)
    ),
    "reduce_max": lambda x: tf.reduce_max(x, -1),
}


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("name", CHOICES)
def test_the_choice_is_that_of_tensorflows_kernels(name: str, dtype: str) -> None:
    if dtype == "float16" and name.startswith("in_top_k"):
        pytest.skip("TensorFlow has it of float32 alone")
    rng = np.random.default_rng(5)
    special = np.where(np.isfinite(SPECIAL), np.clip(SPECIAL, *(np.finfo(dtype).min, np.finfo(dtype).max)), SPECIAL)
    given = rng.normal(size=(300, 7)).round(1)
    chosen = rng.random((300, 7)) < rng.random((300, 1))
    given[chosen] = rng.choice(special, int(chosen.sum()))
    x, function = tf.constant(given.astype(dtype)), CHOICES[name]
    with IPUStrategy().scope():
        received = IPUStrategy().run(tf.function(function, jit_compile=True), args=(x,))
    np.testing.assert_array_equal(received.numpy(), function(x).numpy())
