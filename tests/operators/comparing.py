"""Compares an operator and its gradients, on the engine and eagerly, with a definition in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tests.collectives.running import on_replicas

RTOL = {np.float32: 3e-5, np.float16: 4e-3}


def with_gradients(function: Callable[..., Any], count: int) -> Callable[..., list[tf.Tensor]]:
    """The result, and the gradients of a weighted sum of its elements by the first `count` arguments."""

    def call(*arguments: Any) -> list[tf.Tensor]:
        arguments = tuple(map(tf.convert_to_tensor, arguments))
        with tf.GradientTape() as tape:
            tape.watch(arguments)
            result = function(*arguments)
            wide = tf.cast(result, tf.float64 if result.dtype == tf.float64 else tf.float32)
            weights = tf.cast(tf.sin(tf.range(tf.size(wide), dtype=tf.float32)), wide.dtype)
            total = tf.reduce_sum(tf.reshape(wide, [-1]) * weights)
        return [result, *map(tf.convert_to_tensor, tape.gradient(total, arguments[:count]))]

    return call


def check(
    operator: Callable[..., Any],
    definition: Callable[..., Any],
    *arguments: np.ndarray,
    dtype: Any = np.float32,
    differentiated: int | None = None,
) -> None:
    """Asserts that results and gradients equal those of the definition in float64.

    `arguments` of floating-point types are converted to `dtype`; the first `differentiated` ones get gradients.
    """
    arguments = tuple(a.astype(dtype) if a.dtype.kind == "f" else a for a in map(np.asarray, arguments))
    count = len(arguments) if differentiated is None else differentiated
    exact = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arguments]
    expected = with_gradients(definition, count)(*exact)
    called = with_gradients(operator, count)
    for received in (on_replicas(called, 1, *arguments), called(*arguments)):
        for value, wanted in zip(received, expected, strict=True):
            assert value.dtype == dtype and value.shape == wanted.shape
            largest = np.max(np.abs(wanted), initial=0.0)
            np.testing.assert_allclose(value, wanted, rtol=RTOL[dtype], atol=RTOL[dtype] * max(largest, 1e-3))
