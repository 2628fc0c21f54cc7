"""Least squares in a training loop on replicas, and the same training by plain optimizers in eager TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python import ipu

from tests.collectives.running import OnReplicas

Optimizer = tf.compat.v1.train.Optimizer
BATCH, INPUTS, OUTPUTS = 3, 4, 2


def data(iterations: int, replicas: int) -> tuple[np.ndarray, np.ndarray]:
    """x [iterations, replicas, BATCH, INPUTS], y [iterations, replicas, BATCH, OUTPUTS]."""
    rng = np.random.default_rng(iterations * 10 + replicas)
    x = rng.normal(size=(iterations, replicas, BATCH, INPUTS)).astype(np.float32)
    return x, rng.normal(size=(iterations, replicas, BATCH, OUTPUTS)).astype(np.float32)


def weights() -> list[tf.Variable]:
    """A matrix and a bias."""
    matrix = np.linspace(-1, 1, INPUTS * OUTPUTS, dtype=np.float32).reshape(INPUTS, OUTPUTS)
    return [tf.Variable(matrix, name="matrix"), tf.Variable(np.zeros(OUTPUTS, np.float32), name="bias")]


def loss_of(variables: list[tf.Variable], x: Any, y: Any) -> Any:
    """The mean squared error."""
    return tf.reduce_mean(tf.square(x @ variables[0] + variables[1] - y))


class Trained:
    """A training loop on replicas, and its variables after some iterations."""

    def __init__(
        self,
        make: Callable[[], Optimizer],
        iterations: int,
        replicas: int,
        *,
        runs: int = 1,
        global_step: tf.Variable | None = None,
    ) -> None:
        self.variables, self.optimizer = weights(), make()
        x, y = data(iterations * runs, replicas)

        def step(iteration: Any) -> Any:
            place = ipu.replication_ops.replication_index()
            taken = [each[iteration][place] for each in (tf.constant(x), tf.constant(y))]
            loss = loss_of(self.variables, *taken)
            pairs = self.optimizer.compute_gradients(loss, self.variables)
            with tf.control_dependencies([self.optimizer.apply_gradients(pairs, global_step=global_step)]):
                return iteration + 1

        def function(start: Any) -> Any:
            return tf.while_loop(
                lambda iteration: iteration < start + iterations, lambda iteration: [step(iteration)], [start]
            )

        def fixed() -> Any:
            return tf.while_loop(
                lambda iteration: iteration < iterations, lambda iteration: [step(iteration)], [tf.constant(0)]
            )

        self.program = OnReplicas(fixed if runs == 1 else function, replicas, *([np.int32(0)] if runs > 1 else []))
        for run in range(runs):
            self.program(*([np.int32(run * iterations)] if runs > 1 else []))

    @property
    def values(self) -> list[np.ndarray]:
        """Weights as the host sees them."""
        return [variable.numpy() for variable in self.variables]


def plainly_trained(
    make: Callable[[], Optimizer],
    iterations: int,
    replicas: int,
    batches: int,
    *,
    scale: float = 1.0,
    first_only: bool = False,
) -> list[np.ndarray]:
    """The weights after an update for every `batches` iterations, by the sum of their gradients times `scale`.

    Gradients are averaged over replicas, or are those of replica 0 alone.
    """
    variables, optimizer = weights(), make()
    x, y = data(iterations, replicas)
    sums = [np.zeros(v.shape, np.float64) for v in variables]
    for iteration in range(iterations):
        taken = [0] if first_only else range(replicas)
        for replica in taken:
            with tf.GradientTape() as tape:
                loss = loss_of(variables, x[iteration, replica], y[iteration, replica])
            for total, gradient in zip(sums, tape.gradient(loss, variables), strict=True):
                total += gradient.numpy() / len(taken)
        if iteration % batches == batches - 1:
            gradients = [tf.constant((total * scale).astype(np.float32)) for total in sums]
            optimizer.apply_gradients(list(zip(gradients, variables, strict=True)))
            sums = [np.zeros(v.shape, np.float64) for v in variables]
    return [variable.numpy() for variable in variables]
