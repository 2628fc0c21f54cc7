"""Variables that TensorFlow would reduce over processes where the host reads them."""

from __future__ import annotations

import sys

import tensorflow as tf

from engine.errors import ConfigurationError

REDUCING = ("keras.", "tf_keras.", "tensorflow.python.ops.metrics_impl")
"""Modules whose variables Keras' steps, or the functions of metrics, reduce by themselves."""


def check_synchronization(
    synchronization: tf.VariableSynchronization | None, aggregation: tf.VariableAggregation | None, name: str | None
) -> None:
    """Raises ConfigurationError for a program's own variable with a reduction over processes on each read."""
    of_each_process = (None, tf.VariableAggregation.NONE)
    if synchronization is not tf.VariableSynchronization.ON_READ or aggregation in of_each_process:
        return
    if not _creator().startswith(REDUCING):
        raise ConfigurationError(
            f"Expected variables without aggregation on read in several processes, each of which has its own values. "
            f"Received: variable {name or 'Variable'!r} with synchronization=ON_READ, aggregation={aggregation}. Leave "
            f"out both, and call strategy.reduce in all processes where its sum or mean is needed."
        )


def _creator() -> str:
    """The name of the module that creates a variable, TensorFlow's modules of variables and strategies aside."""
    frame = sys._getframe(2)
    while frame.f_back is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name.startswith(REDUCING) or not name.startswith(("tensorflow.", "ipu.", "contextlib")):
            return name
        frame = frame.f_back
    return ""
