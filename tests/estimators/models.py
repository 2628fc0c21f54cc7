"""Model functions of the tests, their data, and run configurations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python import ipu

v1: Any = tf.compat.v1
ModeKeys = v1.estimator.ModeKeys
BATCH, BATCHES = 8, 8
X = np.random.default_rng(0).normal(size=(BATCH * BATCHES, 3)).astype(np.float32)
Y = (X @ [[1.0], [2.0], [3.0]]).astype(np.float32)
RATE = 0.1


def run_config(loop: int, replicas: int = 1, shards: int = 1, **arguments: Any) -> Any:
    """A RunConfig with an IPUConfig of as many IPUs as that takes."""
    options = ipu.config.IPUConfig()
    options.auto_select_ipus = replicas * shards
    ipu_config = ipu.ipu_run_config.IPURunConfig(loop, options, num_replicas=replicas, num_shards=shards)
    return ipu.ipu_run_config.RunConfig(ipu_config, **arguments)


def dataset(batch: int = BATCH) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(batch, drop_remainder=True)


def repeated() -> tf.data.Dataset:
    return dataset().repeat()


def weights(name: str, shape: list[int]) -> Any:
    return v1.get_variable(name, shape, initializer=v1.glorot_uniform_initializer(seed=1))


def regressor(
    optimizer: Callable[[], Any] = lambda: v1.train.GradientDescentOptimizer(RATE), **fields: Any
) -> Callable[..., Any]:
    """The model function of a linear regressor; `fields` are functions of loss, predictions and labels."""

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        predictions = features @ v1.get_variable("w", [3, 1], initializer=v1.zeros_initializer())
        if mode == ModeKeys.PREDICT:
            return v1.estimator.EstimatorSpec(mode, predictions={"y": predictions})
        loss = tf.reduce_mean(tf.square(predictions - labels))
        more = {name: make(loss, predictions, labels) for name, make in fields.items()}
        if mode == ModeKeys.EVAL:
            if not more:
                more = {"eval_metric_ops": {"mae": v1.metrics.mean_absolute_error(labels, predictions)}}
            return ipu.ipu_estimator.IPUEstimatorSpec(mode, loss=loss, **more)
        train = {"train_op": optimizer().minimize(loss)} if "train_op" not in more else {}
        return ipu.ipu_estimator.IPUEstimatorSpec(mode, loss=loss, **train, **more)

    return model_fn


def regressed(steps: int, batch: int = BATCH) -> np.ndarray:
    """The weights of the regressor after `steps` steps, in NumPy."""
    w = np.zeros((3, 1), np.float32)
    for step in range(steps):
        start = step * batch % len(X)
        x, y = X[start : start + batch], Y[start : start + batch]
        w -= RATE * 2 * x.T @ (x @ w - y) / batch
    return w
