"""The meaning of accumulation and replicas, as a loop in plain Keras on TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import tensorflow as tf

from ipu.config import IPUConfig
from ipu.ipu_strategy import IPUStrategy
from tests.keras.helpers import CLASSES, FEATURES, Kit

TOLERANCE = 3e-5


def configure(replicas: int) -> None:
    config = IPUConfig()
    config.auto_select_ipus = replicas
    config.configure_ipu_system()


def network(kit: Kit) -> Any:
    """A small model that depends on how samples are batched: it normalises each batch."""
    layers = kit.keras.layers
    inputs = kit.keras.Input((FEATURES,))
    hidden = layers.BatchNormalization(momentum=0.8)(layers.Dense(6, "tanh")(inputs))
    return kit.keras.Model(inputs, layers.Dense(CLASSES)(hidden))


def loss_of(kit: Kit) -> Any:
    return kit.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


class Plain:
    """A network of plain Keras for all loops: each loop starts from its first weights, but it is traced only once."""

    def __init__(self, kit: Kit) -> None:
        self.kit, self.model, self.loss = kit, network(kit), loss_of(kit)
        self.start = self.model.get_weights()
        self.passes = tf.function(self._passes, autograph=False)

    def _passes(self, x: tf.Tensor, y: tf.Tensor, scale: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, list[tf.Tensor]]:
        """The loss, the logits, and the gradients of the loss times `scale`."""
        with tf.GradientTape() as tape:
            logits = self.model(x, training=True)
            loss = self.loss(y, logits)
            scaled = loss * scale
        return loss, logits, tape.gradient(scaled, [self.kit.variable(w) for w in self.model.trainable_variables])


@cache
def _plain(kit: Kit) -> Plain:
    return Plain(kit)


def plain_again(kit: Kit) -> Plain:
    """The network with its first weights."""
    plain = _plain(kit)
    plain.model.set_weights(plain.start)
    return plain


def ipu_twin(kit: Kit, model: Any, optimizer: Any, **compilation: Any) -> Any:
    """A copy of the model, with its weights, in a strategy's scope."""
    with IPUStrategy().scope():
        twin = network(kit)
        twin.compile(optimizer, loss_of(kit), metrics=["accuracy"], **compilation)
    twin.set_weights(model.get_weights())
    return twin


class Loop:
    """Trains a plain model update by update; each replica has moving statistics of its own."""

    def __init__(self, plain: Plain, optimizer: Any, steps: int, replicas: int, reduction: str) -> None:
        self.passes, self.model, self.optimizer = plain.passes, plain.model, optimizer
        self.steps, self.replicas, self.reduction = steps, replicas, reduction
        if hasattr(optimizer, "build"):
            optimizer.build(self.model.trainable_variables)
        # Updates run in a graph, as in fit: Nadam of tf_keras behaves differently outside of one.
        self.apply = tf.function(self._applying)
        self.statistics = [self._moving() for _ in range(replicas)]
        self.losses: list[float] = []
        self.right: list[float] = []

    def _moving(self) -> list[np.ndarray]:
        return [variable.numpy() for variable in self.model.non_trainable_variables]

    def _put(self, values: list[np.ndarray]) -> None:
        for variable, value in zip(self.model.non_trainable_variables, values, strict=True):
            variable.assign(value)

    def run(self, batches: Iterator[tuple[np.ndarray, np.ndarray]]) -> None:
        """Takes all batches; they are a whole number of updates."""
        gradients: list[list[Any]] = []
        for x, y in batches:
            replica = len(gradients) % self.replicas
            self._put(self.statistics[replica])
            gradients.append(self._gradients(x, y))
            self.statistics[replica] = self._moving()
            if len(gradients) == self.steps * self.replicas:
                self._apply(gradients)
                gradients = []
        assert not gradients
        self._put(self.statistics[0])

    def _gradients(self, x: np.ndarray, y: np.ndarray) -> list[Any]:
        loss, logits, gradients = self.passes(tf.constant(x), tf.constant(y), self._scaled(tf.constant(1.0)))
        self.losses.append(float(loss))
        self.right.append(float(np.mean(np.argmax(logits, 1) == y)))
        # Keras 3 divides by a loss scale when it applies gradients, tf_keras before.
        unscaled = getattr(self.optimizer, "get_unscaled_gradients", None)
        return gradients if unscaled is None else unscaled(gradients)

    def _scaled(self, loss: Any) -> Any:
        """The loss whose gradients a train_step takes."""
        scale = getattr(self.optimizer, "scale_loss", None) or getattr(self.optimizer, "get_scaled_loss", None)
        return loss if scale is None else scale(loss)

    def _applying(self, gradients: list[Any]) -> None:
        self.optimizer.apply_gradients(list(zip(gradients, self.model.trainable_variables, strict=True)))

    def _apply(self, gradients: list[list[Any]]) -> None:
        """Reduces over each replica's steps, sums over replicas, and applies the result once."""
        total: list[Any] = [0.0] * len(gradients[0])
        for replica in range(self.replicas):
            own = gradients[replica :: self.replicas]
            for number, of_steps in enumerate(zip(*own, strict=True)):
                divisor = 1.0 if self.reduction == "sum" else self.steps
                total[number] = total[number] + sum(of_steps) / divisor
        self.apply(total)


def batches_of(x: np.ndarray, y: np.ndarray, size: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for start in range(0, len(x), size):
        yield x[start : start + size], y[start : start + size]


def assert_same_weights(received: Any, expected: Any, tolerance: float = TOLERANCE) -> None:
    for one, other in zip(received.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)
