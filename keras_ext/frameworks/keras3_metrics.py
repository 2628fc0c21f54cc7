"""Metrics of Keras 3 whose state is set to zero on the device, without a round trip through TensorFlow."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from keras.src.backend.common.stateless_scope import in_stateless_scope
from keras.src.metrics.metric import Metric
from keras.src.metrics.reduction_metrics import Mean, Sum

from ipu._internal.compiler.variables import IPUVariable
from keras_ext.wrapping import Original, wrap


def install() -> None:
    """Wraps the resets at class level; variables that are not on the device are set as before."""
    for kind, names in ((Metric, ()), (Sum, ("total",)), (Mean, ("total", "count"))):
        wrap(kind, "reset_state", functools.partial(_reset, names))


def _reset(names: tuple[str, ...], original: Original, metric: Metric) -> None:
    """Zeroes the variables of these names, or all, as Keras does at the start of each epoch and batch."""
    variables = [getattr(metric, name) for name in names] if names else metric.variables
    values: list[Any] = [getattr(variable, "_value", None) for variable in variables]
    if in_stateless_scope() or not all(isinstance(value, IPUVariable) for value in values):
        return original(metric)
    for value in values:
        value.assign(np.zeros(value.shape.as_list(), value.dtype.as_numpy_dtype))
