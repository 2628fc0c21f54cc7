"""A convolutional network with batch normalization, whose checkpoints another session reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu
from tf_keras.src.legacy_tf_layers import convolutional, core, normalization, pooling

from tests.graphs.programs.on_host import check, dense, trained_on_host, variables_of, weights, zeros

v1 = tf.compat.v1
RANDOM = np.random.default_rng(0)
LABELS = RANDOM.integers(0, 4, 96).astype(np.int32)
IMAGES = (RANDOM.normal(size=[96, 8, 8, 3]) + np.eye(4)[LABELS][:, None, :, None].repeat(2, 2)).astype(np.float32)
BATCHES = [(IMAGES[start : start + 16], LABELS[start : start + 16]) for start in range(0, 96, 16)]


def normalized(x: tf.Tensor, training: bool) -> tf.Tensor:
    """Batch normalization with moving averages, whose updates are in UPDATE_OPS, as tf.layers does."""
    channels = [x.shape[-1]]
    with v1.variable_scope("norm"):
        gamma = v1.get_variable("gamma", channels, initializer=v1.ones_initializer(), use_resource=True)
        beta = zeros("beta", channels)
        moving = [
            v1.get_variable(name, channels, initializer=initializer, trainable=False, use_resource=True)
            for name, initializer in (("mean", v1.zeros_initializer()), ("variance", v1.ones_initializer()))
        ]
    if not training:
        return v1.nn.fused_batch_norm(x, gamma, beta, *moving, is_training=False)[0]
    y, *statistics = v1.nn.fused_batch_norm(x, gamma, beta)
    for variable, value in zip(moving, statistics, strict=True):
        v1.add_to_collection(v1.GraphKeys.UPDATE_OPS, variable.assign_sub(0.1 * (variable - value)).op)
    return y


def plain(images: tf.Tensor, training: bool) -> tf.Tensor:
    x = tf.nn.conv2d(images, weights("filters", [3, 3, 3, 8]), 1, "SAME")
    x = v1.nn.max_pool(tf.nn.relu(normalized(x, training)), 2, 2, "VALID")
    return dense(tf.reshape(x, [-1, 4 * 4 * 8]), 4, "logits")


def layers(images: tf.Tensor, training: bool) -> tf.Tensor:
    """Layers by tf.layers, which TensorFlow takes from tf_keras where TF_USE_LEGACY_KERAS=1 is set."""
    initializer = v1.glorot_uniform_initializer(seed=0)
    x = convolutional.conv2d(images, 8, 3, padding="same", use_bias=False, kernel_initializer=initializer, name="conv")
    x = tf.nn.relu(normalization.batch_normalization(x, training=training, momentum=0.9, name="norm"))
    x = core.flatten(pooling.max_pooling2d(x, 2, 2))
    return core.dense(x, 4, kernel_initializer=initializer, name="logits")


@pytest.mark.sample(1)
@pytest.mark.filterwarnings("ignore:.*is deprecated and will be removed.*:UserWarning")
@pytest.mark.parametrize("net", [plain, layers])
def test_convolutions_with_batch_norm_and_a_saver(net: Any, tmp_path: Path) -> None:
    def entropy(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with v1.variable_scope("cnn", use_resource=True, reuse=v1.AUTO_REUSE):
            return v1.losses.sparse_softmax_cross_entropy(labels, net(images, True))

    def optimizer() -> Any:
        return v1.train.MomentumOptimizer(0.05, 0.9, use_nesterov=True)

    images = v1.placeholder(tf.float32, [None, 8, 8, 3])
    labels = v1.placeholder(tf.int32, [None])
    step = v1.train.get_or_create_global_step()

    def training_step(images: tf.Tensor, labels: tf.Tensor) -> Any:
        loss = entropy(images, labels)
        with tf.control_dependencies(v1.get_collection(v1.GraphKeys.UPDATE_OPS)):
            return loss, optimizer().minimize(loss, global_step=step)

    def inference(images: tf.Tensor) -> tf.Tensor:
        with v1.variable_scope("cnn", use_resource=True, reuse=v1.AUTO_REUSE):
            return tf.nn.softmax(net(images, False))

    with ipu.scopes.ipu_scope("/device:IPU:0"):
        (loss,) = ipu.ipu_compiler.compile(training_step, [images, labels])
        (probabilities,) = ipu.ipu_compiler.compile(inference, [images])
    on_host = inference(images)
    saver = v1.train.Saver(max_to_keep=1)
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        losses = [session.run(loss, {images: bx, labels: by}) for bx, by in BATCHES * 2]
        path = saver.save(session, str(tmp_path / "cnn"), global_step=step)
        ours = variables_of(session)
    theirs, expected = trained_on_host(entropy, optimizer, BATCHES * 2)
    np.testing.assert_allclose(losses, expected, rtol=2e-4, atol=1e-6)
    check(ours, theirs, 1e-3)
    assert path.endswith("cnn-12")
    with v1.Session() as session:
        saver.restore(session, tf.train.latest_checkpoint(str(tmp_path)))
        results = session.run([probabilities, on_host], {images: IMAGES})
        np.testing.assert_allclose(*results, rtol=1e-4, atol=1e-6)
        assert (results[0].argmax(1) == LABELS).mean() > 0.8
