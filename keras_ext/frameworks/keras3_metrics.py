"""Metrics of Keras 3 whose state is set to zero on the device, without a round trip through TensorFlow."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from keras.src.backend.common.stateless_scope import in_stateless_scope
from keras.src.metrics.metric import Metric
from keras.src.metrics.reduction_metrics import Mean, Sum

from ipu._internal.compiler.variables import IPUVariable
from keras_ext.frameworks.common import KerasFunction


def install() -> None:
    """Wraps the resets at class level; variables that are not on the device are set as before."""
    Metric.reset_state = _on_device(Metric.reset_state)
    Sum.reset_state = _on_device(Sum.reset_state, "total")
    Mean.reset_state = _on_device(Mean.reset_state, "total", "count")


def _on_device(original: KerasFunction, *names: str) -> KerasFunction:
    """Wraps a reset to zero the variables of these names, or all; Keras resets at the start of each epoch and batch."""

    @functools.wraps(original)
    def reset_state(self: Metric) -> None:
        variables = [getattr(self, name) for name in names] if names else self.variables
        values: list[Any] = [getattr(variable, "_value", None) for variable in variables]
        if in_stateless_scope() or not all(isinstance(value, IPUVariable) for value in values):
            original(self)
            return
        for value in values:
            value.assign(np.zeros(value.shape.as_list(), value.dtype.as_numpy_dtype))

    return reset_state
