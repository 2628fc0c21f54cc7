"""Metrics that IPUEstimator computes on the device, beside sessions of TensorFlow alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from ipu.ipu_estimator import IPUEstimator
from tests.estimators.models import BATCH, X, Y, dataset, regressor, repeated, run_config

v1: Any = tf.compat.v1


def bucket_metrics(predictions: tf.Tensor, labels: tf.Tensor) -> dict[str, Any]:
    """Metrics whose updates return sums, counts, matrices, or nothing."""
    wanted, found = (tf.clip_by_value(tf.cast(tf.floor(each), tf.int32) + 2, 0, 3) for each in (labels, predictions))
    local = [v1.GraphKeys.LOCAL_VARIABLES]
    total = v1.get_variable("total", [], initializer=v1.zeros_initializer(), trainable=False, collections=local)
    return {
        "iou": v1.metrics.mean_iou(wanted, found, 4),
        "accuracy": v1.metrics.accuracy(wanted, found),
        "each_class": v1.metrics.mean_per_class_accuracy(wanted, found, 4),
        "auc": v1.metrics.auc(wanted > 1, tf.sigmoid(predictions), num_thresholds=9),
        "precision": v1.metrics.precision_at_thresholds(wanted > 1, tf.sigmoid(predictions), [0.2, 0.7]),
        "error": v1.metrics.root_mean_squared_error(labels, predictions),
        "total": (total * 2.0, v1.assign_add(total, tf.reduce_sum(predictions)).op),
    }


def test_metrics_of_the_device_are_those_of_plain_sessions(tmp_path: Path) -> None:
    model_fn = regressor(eval_metric_ops=lambda loss, predictions, labels: bucket_metrics(predictions, labels))
    estimator = IPUEstimator(model_fn, tmp_path, run_config(4))
    w = estimator.train(repeated, steps=4).get_variable_value("w")
    found = estimator.evaluate(dataset)
    with tf.Graph().as_default(), v1.Session() as session:
        x, y = v1.placeholder(tf.float32, [BATCH, 3]), v1.placeholder(tf.float32, [BATCH, 1])
        pairs = bucket_metrics(x @ w, y)
        session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
        for start in range(0, len(X), BATCH):
            feeds = {x: X[start : start + BATCH], y: Y[start : start + BATCH]}
            session.run([update for _, update in pairs.values()], feeds)
        wanted = session.run({name: value for name, (value, _) in pairs.items()})
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5)
