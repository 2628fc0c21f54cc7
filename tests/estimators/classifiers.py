"""Classifiers as model functions and the same ones in Keras, with images, labels and batches."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python import ipu

from tests.estimators.models import ModeKeys, run_config, v1

BATCH, CLASSES, RATE, MOMENTUM = 8, 3, 0.05, 0.9
GENERATOR = np.random.default_rng(0)
IMAGES = GENERATOR.normal(size=(8 * BATCH, 6, 6, 1)).astype(np.float32)
LABELS = GENERATOR.integers(0, CLASSES, len(IMAGES)).astype(np.int32)


def batches() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(({"image": IMAGES}, LABELS)).batch(BATCH, drop_remainder=True)


def repeated() -> tf.data.Dataset:
    return batches().repeat()


def images() -> tf.data.Dataset:
    return batches().map(lambda features, labels: features)


def dnn(image: tf.Tensor, training: bool) -> tf.Tensor:
    """A network of two dense layers made of variables."""
    x = tf.reshape(image, [-1, 36])
    for name, units in (("dense", 5), ("dense_1", CLASSES)):
        with v1.variable_scope(name, use_resource=True):
            kernel = v1.get_variable("kernel", [x.shape[-1], units])
            x = x @ kernel + v1.get_variable("bias", [units], initializer=v1.zeros_initializer())
        x = tf.nn.relu(x) if units != CLASSES else x
    return x


def keras_dnn() -> Any:
    layers = keras.layers
    return keras.Sequential(
        [keras.Input([6, 6, 1]), layers.Flatten(), layers.Dense(5, activation="relu"), layers.Dense(CLASSES)]
    )


def keras_cnn() -> Any:
    layers = keras.layers
    convolution = [layers.Conv2D(4, 3), layers.BatchNormalization(momentum=0.9), layers.ReLU(), layers.MaxPooling2D()]
    return keras.Sequential([keras.Input([6, 6, 1]), *convolution, layers.Flatten(), layers.Dense(CLASSES)])


def cnn(image: tf.Tensor, training: bool) -> tf.Tensor:
    """A convolution with normalisation and a dense layer, of Keras."""
    return keras_cnn()(image, training=training)


NETS = {"dnn": dnn, "cnn": cnn}
IN_KERAS = {"dnn": keras_dnn, "cnn": keras_cnn}


def model_fn(features: Any, labels: Any, mode: str, params: dict[str, Any]) -> Any:
    logits = NETS[params["net"]](features["image"], mode == ModeKeys.TRAIN)
    classes = tf.argmax(logits, 1, output_type=tf.int32)
    if mode == ModeKeys.PREDICT:
        predictions = {"classes": classes, "probabilities": tf.nn.softmax(logits)}
        return v1.estimator.EstimatorSpec(mode, predictions=predictions)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
    if mode == ModeKeys.EVAL:
        metrics = {"accuracy": v1.metrics.accuracy(labels, classes)}
        return v1.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops=metrics)
    train_op = v1.train.MomentumOptimizer(RATE, MOMENTUM).minimize(loss)
    return v1.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def classifier(net: str, folder: str) -> Any:
    return ipu.ipu_estimator.IPUEstimator(model_fn, folder, run_config(4), {"net": net})


def train(net: str, folder: str, last_step: int, version_1: bool = False) -> Any:
    """The estimator after training to a last step, from the folder's checkpoint if it has one."""
    if version_1:
        v1.disable_v2_behavior()
    return classifier(net, folder).train(repeated, max_steps=last_step)
