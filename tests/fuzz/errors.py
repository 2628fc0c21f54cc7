"""Allowed errors of results: those that rounding explains, and no others."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tests.fuzz.distances import EPSILON, TINY, widened
from tests.fuzz.program import Step, run_line


def allowed(step: Step, expected: np.ndarray, magnitude: np.ndarray | None) -> np.ndarray:
    """The distance from XLA's result that a result from the same operands may have."""
    epsilon, tiny = EPSILON[expected.dtype.name], TINY[expected.dtype.name]
    with np.errstate(all="ignore"):
        error = step.ulps * np.abs(widened(expected)) + step.scale
        if magnitude is not None:
            # Either engine may be off by the bound.
            error = error + 2 * step.terms * np.abs(widened(magnitude))
    return np.asarray(np.where(np.isfinite(error), error, 0) * epsilon + (tiny if step.ulps or step.terms else 0))


@tf.custom_gradient
def _shifted(value: tf.Tensor, error: tf.Tensor, direction: tf.Tensor) -> Any:
    """The value with errors added; its gradient also gets a few roundings."""
    epsilon = EPSILON[value.dtype.name]
    moved = value + tf.cast(error * direction, value.dtype)
    kept = tf.math.is_finite(moved)

    def back(upstream: tf.Tensor) -> Any:
        factor = 1 + 8 * epsilon * tf.cast(direction, tf.float64)
        with_errors = tf.cast(tf.cast(upstream, tf.float64) * factor, value.dtype)
        return with_errors, None, None

    return tf.where(kept, moved, value), back


def with_errors(step: Step, env: dict[str, tf.Tensor], phase: tf.Tensor) -> tf.Tensor:
    """The step's result with its largest error added, upwards or downwards; nothing is added where the phase is 0."""
    value = run_line(step.expression, env)
    if not value.dtype.is_floating:
        return value
    wide = tf.stop_gradient(tf.cast(value, tf.float64))
    error = max(step.ulps, 1.0) * tf.abs(wide) + step.scale
    if step.terms:
        magnitude = tf.cast(tf.stop_gradient(run_line(step.magnitude, env)), tf.float64)
        error = error + step.terms * tf.abs(magnitude)
    numbers = tf.reshape(tf.range(value.shape.num_elements()), value.shape)
    direction = tf.sign(tf.sin(tf.cast(numbers, tf.float64) * 12.9898 + phase * 78.233)) * tf.sign(phase)
    return _shifted(value, error * EPSILON[value.dtype.name], direction)
