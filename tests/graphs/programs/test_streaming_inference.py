"""Inference of a data set; another thread dequeues results while the program runs."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python import ipu

from tests.graphs.programs.on_host import dataset, dense
from tests.interrupting import HANGS_SECONDS

v1 = tf.compat.v1
BATCHES = 600
X = np.random.default_rng(0).normal(size=[BATCHES, 4, 16]).astype(np.float32)


def probabilities(x: tf.Tensor) -> tf.Tensor:
    return tf.nn.softmax(dense(tf.nn.relu(dense(x, 32, "hidden")), 3, "output"))


def on_host() -> np.ndarray:
    with tf.Graph().as_default(), v1.Session() as session:
        results = probabilities(tf.constant(X.reshape(-1, 16)))
        session.run(v1.global_variables_initializer())
        return session.run(results).reshape(BATCHES, 4, 3)


def test_inference_with_streaming_results() -> None:
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset([(x,) for x in X]), prefetch_depth=8)
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue(buffer_depth=8)

    def body(count: tf.Tensor, x: tf.Tensor) -> Any:
        results = probabilities(x)
        return count + 1, outfeed.enqueue({"classes": tf.argmax(results, 1, tf.int32), "probabilities": results})

    with ipu.scopes.ipu_scope("/device:IPU:0"):
        (count,) = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(BATCHES, body, [0], infeed))
    rows = outfeed.dequeue()
    received: list[Any] = []
    with v1.Session() as session:
        session.run([v1.global_variables_initializer(), infeed.initializer])
        ended = threading.Event()

        def dequeue() -> None:
            while not ended.is_set():
                received.append(session.run(rows))
            received.append(session.run(rows))

        thread = threading.Thread(target=dequeue)
        thread.start()
        counted = session.run(count)
        ended.set()
        thread.join(HANGS_SECONDS)
        session.run([infeed.deleter, outfeed.deleter])
    assert counted == BATCHES
    results = {name: np.concatenate([each[name] for each in received]) for name in ("classes", "probabilities")}
    np.testing.assert_allclose(results["probabilities"], on_host(), rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(results["classes"], results["probabilities"].argmax(-1))
