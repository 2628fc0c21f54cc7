"""The programs of section 18.14.6: a pipeline of two stages that infers, and one that trains."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from tests.graphs.chapters.programs import run, v1

MICRO_BATCHES, BATCH, PIXELS = 8, 2, 12
IMAGES = np.random.default_rng(5).normal(size=(20, BATCH, PIXELS)).astype(np.float32)
LABELS = np.random.default_rng(6).integers(0, 10, (20, BATCH)).astype(np.int32)


@pytest.fixture(params=["keras", "tf_keras"])
def keras(request: pytest.FixtureRequest) -> str:
    return request.param


def configure(ipus: int) -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = ipus
    config.configure_ipu_system()


def layers(variables: list[np.ndarray], x: Any) -> Any:
    """The logits of three layers."""
    for kernel, bias in zip(variables[::2], variables[1::2], strict=True):
        x = x @ kernel + bias
        if kernel.shape[1] != 10:
            x = tf.nn.relu(x)
    return x


def test_inference(keras: str) -> None:
    configure(4)
    dataset = tf.data.Dataset.from_tensor_slices(IMAGES).repeat()
    v1.set_random_seed(1)
    names = run("18_14_6_inference", keras, dataset=dataset, MICRO_BATCHES=MICRO_BATCHES)
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        logits = layers(session.run(v1.trainable_variables()), IMAGES[: 2 * MICRO_BATCHES])
        logits, probabilities = session.run([logits, tf.nn.softmax(logits)])
    assert logits.shape == (2 * MICRO_BATCHES, BATCH, 10)
    np.testing.assert_allclose(names["probabilities"], probabilities, rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(names["classes"], logits.argmax(-1))


def test_training(keras: str) -> None:
    configure(2)
    dataset = tf.data.Dataset.from_tensor_slices((IMAGES, LABELS)).repeat()
    v1.set_random_seed(1)
    names = run("18_14_6_training", keras, dataset=dataset, MICRO_BATCHES=MICRO_BATCHES)
    rates, losses = names["losses"]
    np.testing.assert_array_equal(rates, np.full(10 * MICRO_BATCHES, 0.01, np.float16))
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        first = session.run(v1.trainable_variables())
    np.testing.assert_allclose(losses, trained_on_host(first), rtol=1e-4)


def test_options_of_stages_are_in_the_cost_report() -> None:
    configure(2)
    dataset = tf.data.Dataset.from_tensor_slices(IMAGES).repeat()
    stages = [lambda x: x @ tf.ones([PIXELS, 512]), lambda x: x @ tf.ones([512, 512])]
    little = ipu.pipelining_ops.PipelineStageOptions(matmul_options={"availableMemoryProportion": 0.0005})
    queues = {"infeed_queue": ipu.ipu_infeed_queue.IPUInfeedQueue(dataset)}

    def cycles(options: list[Any]) -> int:
        def net() -> Any:
            queues["outfeed_queue"] = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
            return ipu.pipelining_ops.pipeline(
                stages, MICRO_BATCHES, forward_propagation_stages_poplar_options=options, **queues
            )

        return ipu.profile(ipu.ipu_compiler.compile(net), path=None).cycles["total"]

    plain = ipu.pipelining_ops.PipelineStageOptions()
    assert cycles([plain, little]) > cycles([plain, plain])


def trained_on_host(first: list[np.ndarray]) -> list[float]:
    """The losses of stochastic gradient descent by TensorFlow on the CPU, each summed over micro-batches."""
    from tensorflow.python.eager import context

    losses = []
    with context.eager_mode():
        variables = [tf.Variable(value) for value in first]
        for start in range(0, 10 * MICRO_BATCHES, MICRO_BATCHES):
            with tf.GradientTape() as tape:
                numbers = [number % len(IMAGES) for number in range(start, start + MICRO_BATCHES)]
                each = [
                    tf.reduce_mean(
                        tf.nn.sparse_softmax_cross_entropy_with_logits(LABELS[n], layers(variables, IMAGES[n]))
                    )
                    for n in numbers
                ]
                total = tf.add_n(each)
            losses += [float(loss) for loss in each]
            for variable, gradient in zip(variables, tape.gradient(total, variables), strict=True):
                variable.assign_sub(np.float32(np.float16(0.01)) * gradient)
    return losses
