"""Training loops written by hand: the same numbers as TensorFlow alone, with both Keras."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from ipu import loops
from ipu.ipu_infeed_queue import IPUInfeedQueue
from ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipu.ipu_strategy import IPUStrategyV1
from tests.keras.helpers import TOLERANCE, Kit, data
from tests.strategy.helpers import compiled, replicas

BATCH, STEPS = 4, 6


def batches() -> tf.data.Dataset:
    """Six batches of features and int32 labels, repeated."""
    features, labels = data(BATCH * STEPS)
    dataset = tf.data.Dataset.from_tensor_slices((features, labels.astype(np.int32)))
    return dataset.batch(BATCH, drop_remainder=True).repeat()


def update(kit: Kit, model: Any, optimizer: Any, features: Any, labels: Any) -> Any:
    """Runs a step of training; returns the loss before it."""
    with tf.GradientTape() as tape:
        predictions = model(features, training=True)
        losses = kit.keras.losses.sparse_categorical_crossentropy(labels, predictions)
        loss = tf.reduce_mean(losses)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    return loss


def made(kit: Kit, name: str, optimizer: str) -> tuple[Any, Any]:
    """A model and an optimizer, the same each time."""
    kit.keras.utils.set_random_seed(3)
    model = getattr(kit, name)()
    return model, kit.keras.optimizers.get({"class_name": optimizer, "config": {"learning_rate": 0.05}})


def on_tensorflow(kit: Kit, name: str, optimizer_name: str, steps: int) -> tuple[list[float], list[np.ndarray]]:
    """Losses and final weights of a plain loop."""
    model, optimizer = made(kit, name, optimizer_name)
    losses = [float(update(kit, model, optimizer, *batch)) for batch, _ in zip(batches(), range(steps))]  # noqa: B905
    return losses, model.get_weights()


@pytest.mark.sample(1)
@pytest.mark.parametrize("optimizer_name", ["SGD", "Adam"])
@pytest.mark.parametrize("name", ["sequential", "unbuilt", "functional", "Subclassed"])
def test_a_loop_over_tf_range_trains_as_tensorflow_does(
    strategy: IPUStrategyV1, kit: Kit, name: str, optimizer_name: str
) -> None:
    expected_losses, expected_weights = on_tensorflow(kit, name, optimizer_name, 10)
    queue = IPUOutfeedQueue()

    @compiled
    def train(n: int, iterator: Any, model: Any, optimizer: Any) -> None:
        for _ in tf.range(n):
            features, labels = next(iterator)
            queue.enqueue(update(kit, model, optimizer, features, labels))

    with strategy.scope():
        model, optimizer = made(kit, name, optimizer_name)
        iterator = iter(batches())
        for n in (4, 4, 2):
            strategy.run(train, args=(n, iterator, model, optimizer))
    np.testing.assert_allclose(queue.dequeue(), expected_losses, rtol=TOLERANCE, atol=TOLERANCE)
    for weights, expected in zip(model.get_weights(), expected_weights, strict=True):
        np.testing.assert_allclose(weights, expected, rtol=TOLERANCE, atol=TOLERANCE)


def test_a_loop_of_ipu_loops_trains_as_tensorflow_does(strategy: IPUStrategyV1, kit: Kit) -> None:
    expected_losses, expected_weights = on_tensorflow(kit, "sequential", "Adam", 8)
    infeed, outfeed = IPUInfeedQueue(batches()), IPUOutfeedQueue()
    with strategy.scope():
        model, optimizer = made(kit, "sequential", "Adam")
        _ = infeed.initializer

    @compiled
    def train() -> Any:
        def body(last: tf.Tensor, features: tf.Tensor, labels: tf.Tensor) -> Any:
            loss = update(kit, model, optimizer, features, labels)
            return loss, outfeed.enqueue((loss, last))

        return loops.repeat(8, body, [0.0], infeed)

    last = strategy.run(train)
    losses, previous = outfeed.dequeue()
    np.testing.assert_allclose(losses, expected_losses, rtol=TOLERANCE, atol=TOLERANCE)
    np.testing.assert_array_equal(previous, [0.0, *losses[:-1]])
    assert float(last) == float(losses[-1])
    for weights, expected in zip(model.get_weights(), expected_weights, strict=True):
        np.testing.assert_allclose(weights, expected, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("count", [2, 4])
def test_replicas_add_their_gradients(strategy: IPUStrategyV1, kit: Kit, count: int) -> None:
    """R replicas with batches of 4 make the update of one batch of 4 R whose gradient is R times the mean's."""
    replicas(count)
    dataset = batches()
    joined = dataset.unbatch().batch(BATCH * count, drop_remainder=True)
    reference, plain = made(kit, "sequential", "SGD")
    plain.learning_rate = 0.05 * count
    losses = [float(update(kit, reference, plain, *batch)) for batch, _ in zip(joined, range(3))]  # noqa: B905
    queue = IPUOutfeedQueue()

    @compiled
    def train(n: int, iterator: Any, model: Any, optimizer: Any) -> None:
        for _ in tf.range(n):
            features, labels = next(iterator)
            queue.enqueue(update(kit, model, optimizer, features, labels))

    with strategy.scope():
        model, optimizer = made(kit, "sequential", "SGD")
        strategy.run(train, args=(3, iter(dataset), model, optimizer))
    rows = queue.dequeue().numpy()
    assert rows.shape == (3, count)
    np.testing.assert_allclose(rows.mean(axis=1), losses, rtol=TOLERANCE, atol=TOLERANCE)
    for weights, expected in zip(model.get_weights(), reference.get_weights(), strict=True):
        np.testing.assert_allclose(weights, expected, rtol=TOLERANCE, atol=TOLERANCE)


def test_an_interrupted_training_goes_on_from_before(strategy: IPUStrategyV1, kit: Kit) -> None:
    """A run whose data set ends changes nothing: weights and optimizer stay as before."""
    expected_losses, expected_weights = on_tensorflow(kit, "sequential", "Adam", STEPS)
    queue = IPUOutfeedQueue()

    @compiled
    def train(n: int, iterator: Any, model: Any, optimizer: Any) -> None:
        for _ in tf.range(n):
            features, labels = next(iterator)
            queue.enqueue(update(kit, model, optimizer, features, labels))

    with strategy.scope():
        model, optimizer = made(kit, "sequential", "Adam")
        strategy.run(train, args=(2, iter(batches()), model, optimizer))
        with pytest.raises(tf.errors.OutOfRangeError):
            strategy.run(train, args=(4, iter(batches().skip(2).take(3)), model, optimizer))
        queue.dequeue()
        strategy.run(train, args=(4, iter(batches().skip(2)), model, optimizer))
    np.testing.assert_allclose(queue.dequeue(), expected_losses[2:], rtol=TOLERANCE, atol=TOLERANCE)
    for weights, expected in zip(model.get_weights(), expected_weights, strict=True):
        np.testing.assert_allclose(weights, expected, rtol=TOLERANCE, atol=TOLERANCE)


def test_a_model_whose_call_takes_several_tensors(strategy: IPUStrategyV1, kit: Kit) -> None:
    """Models of users' classes need no graph, as they have no stages of a pipeline."""

    class Masked(kit.keras.Model):  # type: ignore[name-defined,misc]
        """A product with a mask, the second argument."""

        def __init__(self) -> None:
            super().__init__()
            self.dense = kit.keras.layers.Dense(2)

        def call(self, inputs: Any, mask: Any, training: bool = False) -> Any:
            return self.dense(inputs) * mask[:, None]

    with strategy.scope():
        model = Masked()
        inputs, mask = tf.ones([3, 4]), tf.constant([1.0, 0.0, 2.0])
        first = model(inputs, mask)
        run = compiled(lambda inputs, mask: model(inputs, mask, training=True))
        again = strategy.run(run, args=(inputs, mask))
    expected = np.ones((3, 4)) @ model.get_weights()[0] * np.array([[1.0], [0.0], [2.0]])
    np.testing.assert_allclose(first, expected, rtol=1e-5)
    np.testing.assert_allclose(again, expected, rtol=1e-5)
