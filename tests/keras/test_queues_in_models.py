"""Layers and optimizers that enqueue to an IPUOutfeedQueue while Keras' fit and evaluate run them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from ipu.ipu_outfeed_queue import IPUOutfeedMode, IPUOutfeedQueue
from ipu.ipu_strategy import IPUStrategy
from ipu.ops.internal_ops import print_tensor
from tests.keras.helpers import FEATURES, Kit, keras3_only
from tests.keras.micro_batches import configure
from tests.keras.pipelines import set_stages

BATCH, UPDATES, OUT = 3, 2, 2


class Inspected:
    """A model that enqueues an activation and a gradient, an optimizer that enqueues gradients, and the queues."""

    def __init__(self, kit: Kit) -> None:
        self.kit = kit
        self.activations, self.upstream, self.gradients = IPUOutfeedQueue(), IPUOutfeedQueue(), IPUOutfeedQueue()

    def optimizer(self) -> Any:
        queue, keras = self.gradients, self.kit.keras

        class Telling(keras.optimizers.SGD):  # type: ignore[misc,name-defined]
            if self.kit.is_keras3:

                def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
                    queue.enqueue(tuple(grads))
                    return super().apply(grads, trainable_variables)

            else:

                def apply_gradients(self, grads_and_vars: Any, *arguments: Any, **named: Any) -> Any:
                    pairs = list(grads_and_vars)
                    queue.enqueue(tuple(gradient for gradient, _ in pairs))
                    return super().apply_gradients(pairs, *arguments, **named)

        return Telling(0.05)

    def model(self) -> Any:
        keras, activations, upstream = self.kit.keras, self.activations, self.upstream

        class Told(keras.layers.Layer):  # type: ignore[misc,name-defined]
            def call(self, x: Any) -> Any:
                activations.enqueue({"x": x})
                return x

        class ToldGradient(keras.layers.Layer):  # type: ignore[misc,name-defined]
            def call(self, x: Any) -> Any:
                @tf.custom_gradient
                def same(x: Any) -> Any:
                    def gradient(dy: Any) -> Any:
                        upstream.enqueue(dy)
                        return dy

                    return tf.identity(x), gradient

                return same(x)

        dense = keras.layers.Dense
        layers = [dense(4, "tanh"), Told(), dense(5, "tanh"), ToldGradient(), dense(OUT)]
        return keras.Sequential([keras.layers.Input((FEATURES,)), *layers])


def expected(kit: Kit, weights: list[Any], x: np.ndarray, y: np.ndarray) -> tuple[Any, Any, Any]:
    """Activations, and the gradients of a micro-batch's mean loss by the second Dense's output and by all weights."""
    weights = [tf.constant(weight) for weight in weights]
    with tf.GradientTape() as tape:
        tape.watch(weights)
        first = tf.tanh(x @ weights[0] + weights[1])
        second = tf.tanh(first @ weights[2] + weights[3])
        loss = tf.reduce_mean(tf.square(second @ weights[4] + weights[5] - y))
    upstream, *gradients = tape.gradient(loss, [second, *weights])
    return first, upstream, gradients


def random_data(samples: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(4)
    return tuple(generator.normal(size=(samples, size)).astype(np.float32) for size in (FEATURES, OUT))


@pytest.mark.parametrize(
    ("steps", "replicas", "pipelined"),
    [(1, 1, False), (2, 1, False), (1, 2, False), (2, 2, False), (4, 1, True), (4, 2, True)],
)
def test_activations_and_gradients(kit: Kit, steps: int, replicas: int, pipelined: bool) -> None:
    inspected = Inspected(kit)
    configure(replicas * (2 if pipelined else 1))
    count = steps * replicas
    x, y = random_data(BATCH * count * UPDATES)
    with IPUStrategy().scope():
        model = inspected.model()
        model.compile(inspected.optimizer(), "mse", steps_per_execution=steps * UPDATES)
    if pipelined:
        set_stages(model, (0, 0, 1, 1, 1))
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=steps)
    else:
        model.set_gradient_accumulation_options(steps)
    weights = model.get_weights()
    model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0)
    axis = (replicas,) if replicas > 1 else ()
    activations = inspected.activations.dequeue()["x"].numpy()
    upstream, gradients = inspected.upstream.dequeue().numpy(), inspected.gradients.dequeue()
    assert activations.shape == (steps * UPDATES, *axis, BATCH, 4)
    assert upstream.shape == (steps * UPDATES, *axis, BATCH, 5)
    assert gradients[0].shape == (UPDATES, *axis, FEATURES, 4)
    activations, upstream = activations.reshape(-1, BATCH, 4), upstream.reshape(-1, BATCH, 5)
    for update in range(UPDATES):
        total = [np.zeros_like(weight) for weight in weights]
        for number in range(update * count, (update + 1) * count):
            rows = slice(number * BATCH, (number + 1) * BATCH)
            first, by_second, by_weights = expected(kit, weights, x[rows], y[rows])
            np.testing.assert_allclose(activations[number], first, atol=1e-5)
            np.testing.assert_allclose(upstream[number], by_second, atol=1e-5)
            total = [one + other.numpy() for one, other in zip(total, by_weights, strict=True)]
        for received, right in zip(gradients, total, strict=True):
            np.testing.assert_allclose(received[update], np.broadcast_to(right, received[update].shape), atol=1e-5)
        weights = [weight - 0.05 * right for weight, right in zip(weights, total, strict=True)]
    model.evaluate(x, y, batch_size=BATCH, verbose=0)
    assert inspected.activations.dequeue()["x"].shape == (steps * UPDATES, *axis, BATCH, 4)
    assert inspected.upstream.dequeue().shape[0] == inspected.gradients.dequeue()[0].shape[0] == 0


@keras3_only
@pytest.mark.parametrize("pipelined", [False, True])
def test_with_asynchronous_callbacks_and_of_mode_last(kit: Kit, pipelined: bool) -> None:
    inspected = Inspected(kit)
    inspected.activations = IPUOutfeedQueue(outfeed_mode=IPUOutfeedMode.LAST)
    configure(4 if pipelined else 2)
    x, y = random_data(BATCH * 8)
    with IPUStrategy().scope():
        model = inspected.model()
        model.compile("sgd", "mse", steps_per_execution=4)
    if pipelined:
        set_stages(model, (0, 0, 1, 1, 1))
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=4)
    model.set_asynchronous_callbacks(True)
    model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0)
    model.evaluate(x, y, batch_size=BATCH, verbose=0)
    first, _, _ = expected(kit, model.get_weights(), x[-2 * BATCH :], y[-2 * BATCH :])
    received = inspected.activations.dequeue()["x"].numpy()
    np.testing.assert_allclose(received, first.numpy().reshape(2, BATCH, 4), atol=1e-5)


@keras3_only
def test_an_enqueue_in_a_branch_of_replicas_is_refused_and_the_model_stays_usable(kit: Kit) -> None:
    queue = IPUOutfeedQueue()

    class Sometimes(kit.keras.layers.Layer):  # type: ignore[name-defined]
        def call(self, x: Any) -> Any:
            def tell() -> Any:
                with tf.control_dependencies([queue.enqueue(x)]):
                    return tf.identity(x)

            return tf.cond(tf.reduce_sum(x) > 0, tell, lambda: x)

    configure(2)
    x, y = random_data(BATCH * 4)
    with IPUStrategy().scope():
        model = kit.keras.Sequential([kit.keras.layers.Input((FEATURES,)), Sometimes(), kit.keras.layers.Dense(OUT)])
        model.compile("sgd", "mse")
    with pytest.raises(ValueError, match="2 replicas.*inside a loop or a branch"):
        model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0)
    configure(1)
    model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0)
    positive = sum(float(x[start : start + BATCH].sum()) > 0 for start in range(0, len(x), BATCH))
    assert queue.dequeue().shape == (positive, BATCH, FEATURES)


@pytest.mark.parametrize("pipelined", [False, True])
def test_layers_and_optimizers_print(kit: Kit, pipelined: bool, capfd: pytest.CaptureFixture[str]) -> None:
    class Printed(kit.keras.layers.Layer):  # type: ignore[name-defined]
        def call(self, x: Any) -> Any:
            return print_tensor(x, self.name)

    method = "apply" if kit.is_keras3 else "apply_gradients"

    def printing(self: Any, given: Any, *arguments: Any, **named: Any) -> Any:
        given = list(given)
        print_tensor(given[0] if kit.is_keras3 else given[0][0], "gradient")
        return getattr(kit.keras.optimizers.SGD, method)(self, given, *arguments, **named)

    layers = kit.keras.layers
    configure(2 if pipelined else 1)
    with IPUStrategy().scope():
        made = [layers.Dense(1, name="one"), Printed(name="first"), layers.Dense(1), Printed(name="second")]
        model = kit.keras.Sequential([layers.Input((2,)), *made])
        optimizer = type("Printing", (kit.keras.optimizers.SGD,), {method: printing})(0.1)
        model.compile(optimizer, "mse", steps_per_execution=4)
    if pipelined:
        set_stages(model, (0, 0, 1, 1))
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=4)
    else:
        model.set_gradient_accumulation_options(2)
    model.fit(np.ones((4, 2), np.float32), np.ones((4, 1), np.float32), batch_size=1, verbose=0)
    printed = capfd.readouterr().err
    counts = [printed.count(f"{name}: ") for name in ("first", "second", "gradient")]
    assert counts == [4, 4, 1 if pipelined else 2]
