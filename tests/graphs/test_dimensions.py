"""Shapes of version 1, whose elements are Dimension objects: programs, queues and layers take them as others."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from tensorflow.python import ipu

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def dimensions() -> Iterator[None]:
    was_on = v1.TensorShape is not None and not hasattr(tf.TensorShape([1])[0], "value")
    v1.disable_v2_tensorshape()
    yield
    if was_on:
        v1.enable_v2_tensorshape()


@pytest.mark.parametrize("elements", [500, 3000, 20_000, 90_000])
@pytest.mark.parametrize("mapped", [False, True])
def test_elements_of_any_size_are_fed(elements: int, mapped: bool) -> None:
    with tf.Graph().as_default():
        data = np.arange(6 * elements, dtype=np.float32).reshape(6, elements) % 7
        dataset = tf.data.Dataset.from_tensor_slices(data)
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue((dataset.map(lambda x: x * 2) if mapped else dataset).repeat())
        outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

        def body(total, row):
            return total + tf.reduce_sum(row), outfeed.enqueue(row[: elements // 2])

        (total,) = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(9, body, [0.0], infeed))
        rows = outfeed.dequeue()
        with v1.Session() as session:
            session.run(infeed.initializer)
            scale = 2 if mapped else 1
            expected = scale * np.concatenate([data, data[:3]])
            assert session.run(total) == expected.sum()
            np.testing.assert_array_equal(session.run(rows), expected[:, : elements // 2])


def test_the_last_element_and_replicas() -> None:
    with tf.Graph().as_default():
        mode = ipu.ipu_outfeed_queue.IPUOutfeedMode.LAST
        outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue(outfeed_mode=mode)
        gathered = ipu.ipu_compiler.compile(
            lambda: ipu.loops.repeat(
                3,
                lambda x: (
                    x + 1,
                    outfeed.enqueue(ipu.ops.all_to_all_op.all_gather(tf.reshape(x, [1, 1]) * tf.ones([2, 3]), 1)),
                ),
                [0.0],
            )
        )
        with v1.Session() as session:
            session.run(gathered)
            np.testing.assert_array_equal(session.run(outfeed.dequeue()), np.full([1, 2, 3], 2.0))


def test_models_of_tf_keras_in_the_scope() -> None:
    x, y = np.random.default_rng(0).random([23, 4]).astype("f"), np.arange(23) % 3
    with ipu.ipu_strategy.IPUStrategy().scope():
        inputs = tf_keras.Input((4,))
        norm = tf_keras.ipu.layers.GroupNormalization(groups=None)
        hidden = tf_keras.layers.Dense(6)(inputs)
        model = tf_keras.Model(inputs, tf_keras.layers.Dense(3)(norm(hidden)))
        model.compile("sgd", tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True), steps_per_execution=2)
        dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(4)
        history = model.fit(dataset, epochs=2, verbose=0).history["loss"]
        assert history[1] < history[0]
        assert model.predict(dataset.map(lambda x, y: x), verbose=0).shape == (23, 3)


def test_operations_that_are_composed() -> None:
    """Operations that XLA lacks take sizes from shapes."""
    images = np.random.default_rng(0).normal(size=(2, 5, 6, 3)).astype(np.float32)

    def composed(x: tf.Tensor) -> list[tf.Tensor]:
        kernel, parts = tf.ones([2, 2, 3]), tf.cast(x[:, 0, 0, 0] > 0, tf.int32)
        rows = tf.dynamic_partition(x, parts, 2)
        return [
            *v1.nn.max_pool_with_argmax(x, [1, 2, 2, 1], [1, 2, 2, 1], "SAME"),
            v1.nn.dilation2d(x, kernel, [1, 1, 1, 1], [1, 1, 1, 1], "SAME"),
            v1.image.crop_and_resize(x, [[0.0, 0.1, 0.9, 0.8]], [1], [2, 3]),
            v1.dynamic_stitch(tf.dynamic_partition(tf.range(2), parts, 2), [rows[0] * 2, rows[1]]),
        ]

    with tf.Graph().as_default(), v1.Session() as session:
        x = tf.constant(images)
        found, expected = session.run([ipu.ipu_compiler.compile(composed, [x]), composed(x)])
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
