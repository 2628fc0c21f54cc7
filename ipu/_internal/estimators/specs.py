"""Specifications that a model function returns."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import tensorflow as tf
from tensorflow.python.saved_model.model_utils.mode_keys import EstimatorModeKeys as ModeKeys

from engine.errors import ConfigurationError
from ipu._internal.types import Nest

EstimatorSpecBase = namedtuple(
    "EstimatorSpecBase",
    "mode predictions loss train_op eval_metric_ops export_outputs training_chief_hooks training_hooks scaffold "
    "evaluation_hooks prediction_hooks",
)
IPUEstimatorSpecBase = namedtuple(
    "IPUEstimatorSpecBase",
    "mode predictions loss train_op eval_metric_ops eval_metrics host_call training_hooks evaluation_hooks "
    "prediction_hooks",
)
REQUIRED = {ModeKeys.TRAIN: ("loss", "train_op"), ModeKeys.EVAL: ("loss",), ModeKeys.PREDICT: ("predictions",)}
MODES = tuple(REQUIRED)


class EstimatorSpec(EstimatorSpecBase):
    """Operations and objects that a model function returns to an estimator: tf.estimator.EstimatorSpec.

    `loss` is required in modes TRAIN and EVAL, `train_op` in TRAIN, `predictions` in PREDICT. The fields are those of
    tf.estimator.EstimatorSpec.

    Raises:
        ValueError: one that the mode requires is missing, or the mode is unknown.
        TypeError: a metric is no pair of value and update, `scaffold` no Scaffold, or a hook no SessionRunHook.
    """

    __slots__ = ()

    def __new__(
        cls,
        mode: str,
        predictions: Nest = None,
        loss: Any = None,
        train_op: Any = None,
        eval_metric_ops: dict[str, Any] | None = None,
        export_outputs: dict[str, Any] | None = None,
        training_chief_hooks: Any = None,
        training_hooks: Any = None,
        scaffold: Any = None,
        evaluation_hooks: Any = None,
        prediction_hooks: Any = None,
    ) -> EstimatorSpec:
        check_mode(mode)
        for name, given in (("loss", loss), ("train_op", train_op), ("predictions", predictions)):
            if given is None and name in REQUIRED[mode]:
                raise ConfigurationError(f"Expected {name} in an EstimatorSpec of mode {mode!r}. Received: None.")
        check_metrics(eval_metric_ops)
        if scaffold is not None and not isinstance(scaffold, tf.compat.v1.train.Scaffold):
            raise TypeError(f"Expected scaffold to be a tf.compat.v1.train.Scaffold. Received: {scaffold!r}.")
        hooks = [checked_hooks(h) for h in (training_chief_hooks, training_hooks, evaluation_hooks, prediction_hooks)]
        return super().__new__(
            *(cls, mode, predictions, loss, train_op, eval_metric_ops or {}, export_outputs),
            *(hooks[0], hooks[1], scaffold, hooks[2], hooks[3]),
        )


class IPUEstimatorSpec(IPUEstimatorSpecBase):
    """Operations and objects that a model function returns to an IPUEstimator (Python API, 18.12.1).

    Args:
        mode: a ModeKeys.
        predictions: a tensor, or a dictionary of tensors, [batch, ...]; required in mode PREDICT.
        loss: a scalar tensor; required in modes TRAIN and EVAL.
        train_op: an operation or tensor; required in mode TRAIN.
        eval_metric_ops: a dictionary of pairs (value, update) that the device computes.
        eval_metrics: a function that returns such a dictionary on the host, and the list or dictionary of tensors of
            the device that it takes.
        host_call: a function called on the host after each training step, and the list of tensors that it takes.
        training_hooks, evaluation_hooks, prediction_hooks: SessionRunHooks for training, evaluation and prediction.

    Raises:
        ValueError: the mode is unknown, both kinds of metrics are given, or a tuple is not of that form.
        TypeError: a metric is no pair of value and update, or a hook no SessionRunHook.
    """

    __slots__ = ()

    def __new__(
        cls,
        mode: str,
        predictions: Nest = None,
        loss: Any = None,
        train_op: Any = None,
        eval_metric_ops: dict[str, Any] | None = None,
        eval_metrics: tuple[Any, Any] | None = None,
        host_call: tuple[Any, Any] | None = None,
        training_hooks: Any = None,
        evaluation_hooks: Any = None,
        prediction_hooks: Any = None,
    ) -> IPUEstimatorSpec:
        check_mode(mode)
        if eval_metric_ops is not None and eval_metrics is not None:
            raise ConfigurationError("Expected one of eval_metric_ops and eval_metrics. Received: both. Leave one out.")
        check_metrics(eval_metric_ops)
        for name, pair, types in (("eval_metrics", eval_metrics, list | tuple | dict), ("host_call", host_call, list)):
            if pair is None:
                continue
            is_pair = isinstance(pair, tuple) and len(pair) == 2 and callable(pair[0])
            if not is_pair or not isinstance(pair[1], types):
                raise ConfigurationError(
                    f"Expected {name} to be a tuple of a function and a list of tensors. Received: {pair!r}."
                )
        hooks = [checked_hooks(each) for each in (training_hooks, evaluation_hooks, prediction_hooks)]
        return super().__new__(cls, mode, predictions, loss, train_op, eval_metric_ops, eval_metrics, host_call, *hooks)


def check_mode(mode: str) -> None:
    """Raises ConfigurationError for anything but a ModeKeys."""
    if mode not in MODES:
        raise ConfigurationError(f"Expected mode to be one of {', '.join(map(repr, MODES))}. Received: {mode!r}.")


def check_metrics(metrics: Any) -> None:
    """Raises TypeError for anything but a dictionary of pairs (value, update), or None."""
    if metrics is not None and not isinstance(metrics, dict):
        raise TypeError(f"Expected metrics to be a dictionary. Received: {metrics!r}.")
    for name, pair in (metrics or {}).items():
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise TypeError(
                f"Expected metric {name!r} to be a pair of value and update, as tf.compat.v1.metrics gives. "
                f"Received: {pair!r}."
            )


def checked_hooks(hooks: Any) -> tuple[Any, ...]:
    """The hooks as a tuple. Raises TypeError for an object that is no SessionRunHook."""
    hooks = tuple(hooks or ())
    for hook in hooks:
        if not isinstance(hook, tf.compat.v1.train.SessionRunHook):
            raise TypeError(f"Expected hooks to be tf.estimator.SessionRunHooks. Received: {hook!r}.")
    return hooks
