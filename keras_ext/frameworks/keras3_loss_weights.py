"""Logged losses of a Keras 3 model's outputs, which count batches where Keras' own trace does not know their rows."""

from __future__ import annotations

from typing import Any

import keras
from keras.src.metrics.reduction_metrics import Mean
from keras.src.trainers.compile_utils import CompileLoss

from ipu._internal.thread_values import ThreadValue
from keras_ext.keras_traces import open_rows
from keras_ext.wrapping import Original, wrap

_of_open_rows: ThreadValue[CompileLoss | None] = ThreadValue(None)
"""The losses that this thread computes of a batch whose number of rows Keras would not know."""


def install() -> None:
    """Wraps the losses of a compiled model, and means, at class level."""
    wrap(CompileLoss, "call", _call)
    wrap(Mean, "update_state", _update)


def _call(original: Original, losses: CompileLoss, *arguments: Any, **named: Any) -> Any:
    with _of_open_rows.replaced_by(losses if open_rows.value else None):
        return original(losses, *arguments, **named)


def _update(original: Original, mean: keras.Metric, values: Any, sample_weight: Any = None) -> Any:
    # Keras weighs the loss of each output by the first dimension of a shape, which is None where it is open.
    losses = _of_open_rows.value
    if losses is not None and any(mean is each for each in losses.metrics):
        sample_weight = None
    return original(mean, values, sample_weight)
