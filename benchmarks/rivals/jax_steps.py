"""JAX: the model's step as one `jax.jit` function with donated state, called in a loop from Python."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import keras
import numpy as np

from benchmarks import models
from benchmarks.rivals.keras_fit import loss_of, rows_of
from benchmarks.workloads import Workload


def prepare(workload: Workload, rival: str, options: list[str], inputs: Any, labels: np.ndarray) -> Callable[[], float]:
    """Builds the model and runs its first step; Keras only defines it, nothing of Keras runs in the loop.

    A round runs the workload's steps and returns seconds per step.
    """
    model = getattr(models, workload.model)(*workload.arguments)
    if workload.kind != "fit":
        return _predicting(workload, model, inputs)
    optimizer = keras.optimizers.get(workload.optimizer)
    optimizer.build(model.trainable_variables)
    compared = loss_of(workload)

    def loss(trainable: Any, rest: Any, x: Any, y: Any) -> Any:
        predicted, rest, losses = model.stateless_call(trainable, rest, x, training=True, return_losses=True)
        return compared(y, predicted) + sum(losses), rest

    @jax.jit
    def step(state: Any, x: Any, y: Any) -> Any:
        trainable, rest, slots = state
        (value, rest), gradients = jax.value_and_grad(loss, has_aux=True)(trainable, rest, x, y)
        trainable, slots = optimizer.stateless_apply(slots, gradients, trainable)
        return (trainable, rest, slots), value

    state = tuple(
        [variable.value for variable in kind]
        for kind in (model.trainable_variables, model.non_trainable_variables, optimizer.variables)
    )
    step = jax.jit(step, donate_argnums=0)
    batch = workload.batch
    state, value = step(state, rows_of(inputs, 0, batch), labels[:batch])
    value.block_until_ready()

    def round_of() -> float:
        nonlocal state
        order = np.random.permutation(workload.samples)
        start = time.perf_counter()
        for number in range(workload.steps):
            rows = order[number * batch : (number + 1) * batch]
            x = [each[rows] for each in inputs] if isinstance(inputs, list) else inputs[rows]
            state, value = step(state, x, labels[rows])
        value.block_until_ready()
        return (time.perf_counter() - start) / workload.steps

    return round_of


def _predicting(workload: Workload, model: Any, inputs: Any) -> Callable[[], float]:
    trainable = [variable.value for variable in model.trainable_variables]
    rest = [variable.value for variable in model.non_trainable_variables]
    batch = workload.batch
    predict = jax.jit(lambda x: model.stateless_call(trainable, rest, x, training=False)[0])
    np.asarray(predict(rows_of(inputs, 0, batch)))

    def round_of() -> float:
        start = time.perf_counter()
        for number in range(workload.steps):
            np.asarray(predict(rows_of(inputs, number * batch, (number + 1) * batch)))
        return (time.perf_counter() - start) / workload.steps

    return round_of
