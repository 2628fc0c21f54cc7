"""The logs of an epoch of Keras 3, taken from its last step if computing the metrics again would give the same."""

from __future__ import annotations

from typing import Any

import keras
from keras.src.trainers.trainer import Trainer

from keras_ext.frameworks.common import serves
from keras_ext.origins import packages_of
from keras_ext.training import EpochFunction
from keras_ext.types import Logs
from keras_ext.wrapping import Original, wrap

STEPS = ("train_step", "test_step", "compute_metrics", "get_metrics_result", "metrics")
"""The methods that decide the logs of a step: Keras' own return the results of all metrics."""


def install() -> None:
    """Wraps the getter of an epoch's logs at class level: TensorFlow takes milliseconds to compute them."""
    wrap(Trainer, "_get_metrics_result_or_logs", _results_or_logs)


def _results_or_logs(original: Original, model: keras.Model, logs: Logs) -> Any:
    return logs if serves(model._distribute_strategy) and _are_results(model, logs) else original(model, logs)


def _are_results(model: keras.Model, logs: Logs) -> bool:
    """Whether logs are the results of Keras' own metrics, whose variables have not changed since."""
    functions = (getattr(model, f"{mode}_function", None) for mode in ("train", "test"))
    if not any(isinstance(each, EpochFunction) and each.has_reported(logs) for each in functions):
        return False
    own = all(getattr(type(model), name) is getattr(keras.Model, name) and name not in vars(model) for name in STEPS)
    return own and all(_is_known(metric) for metric in model.metrics)


def _is_known(metric: keras.Metric) -> bool:
    """Whether a metric, and its parts, are Keras' own, whose results depend on their variables alone."""
    parts = getattr(metric, "metrics", ())
    return packages_of(metric) == {"keras"} and all(_is_known(part) for part in parts)
