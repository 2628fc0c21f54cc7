"""A perceptron for images of digits: fed batches, then loops on the device that read a data set."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python import ipu

from tests.graphs.programs.on_host import check, dataset, dense, trained_on_host, variables_of

v1 = tf.compat.v1
RANDOM = np.random.default_rng(0)
LABELS = RANDOM.integers(0, 10, 320).astype(np.int32)
IMAGES = (RANDOM.normal(size=[320, 8, 8]) + np.eye(10)[LABELS][:, :8, None]).astype(np.float32)
BATCHES = [(IMAGES[start : start + 32], LABELS[start : start + 32]) for start in range(0, 320, 32)]


def logits_of(images: tf.Tensor) -> tf.Tensor:
    hidden = tf.nn.relu(dense(tf.reshape(images, [-1, 64]), 32, "hidden"))
    return dense(hidden, 10, "logits", 1)


def entropy(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    return v1.losses.sparse_softmax_cross_entropy(labels, logits_of(images))


def rate() -> Any:
    return v1.train.exponential_decay(0.01, v1.train.get_or_create_global_step(), 5, 0.5, staircase=True)


def optimizer() -> Any:
    return v1.train.AdamOptimizer(rate)  # called in each function that minimises


def training_step(images: tf.Tensor, labels: tf.Tensor, adam: Any) -> Any:
    loss = entropy(images, labels)
    return loss, adam.minimize(loss, global_step=v1.train.get_or_create_global_step())


def test_digits_with_feeds_and_loops() -> None:
    images = v1.placeholder(tf.float32, [32, 8, 8])
    labels = v1.placeholder(tf.int32, [32])
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset(BATCHES))
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    adam = optimizer()

    def body(images: tf.Tensor, labels: tf.Tensor) -> Any:
        loss, train = training_step(images, labels, adam)
        with tf.control_dependencies([train]):
            return outfeed.enqueue({"loss": loss, "step": v1.train.get_global_step().read_value()})

    def fed(images: tf.Tensor, labels: tf.Tensor) -> Any:
        with v1.variable_scope("", reuse=v1.AUTO_REUSE):
            return training_step(images, labels, adam)

    def looped() -> Any:
        with v1.variable_scope("", reuse=v1.AUTO_REUSE):
            return ipu.loops.repeat(5, body, [], infeed)

    with v1.variable_scope("", use_resource=True):
        v1.train.get_or_create_global_step()
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            (loss,) = ipu.ipu_compiler.compile(fed, [images, labels])
            loop = ipu.ipu_compiler.compile(looped)
    rows = outfeed.dequeue()
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        losses = [session.run(loss, {images: bx, labels: by}) for bx, by in BATCHES]
        session.run(infeed.initializer)
        for _ in range(2):
            session.run(loop)
        streamed = session.run(rows)
        ours = variables_of(session)
    theirs, expected = trained_on_host(entropy, optimizer, BATCHES * 2)
    np.testing.assert_allclose([*losses, *streamed["loss"]], expected, rtol=1e-4)
    np.testing.assert_array_equal(streamed["step"], np.arange(11, 21))
    check(ours, theirs, 1e-3)
