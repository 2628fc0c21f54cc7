"""JAX: the model's step as one `jax.jit` function with donated state, called in a loop from Python or looped inside."""

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
    """Builds the model and runs its first call. Keras only defines the model; nothing of Keras runs in the loop.

    A round runs the workload's steps and returns seconds per step. The option "execution" runs as many steps in a call
    as the workload has in an execution, by `jax.lax.scan`.
    """
    model = getattr(models, workload.model)(*workload.arguments)
    if workload.kind != "fit":
        return _predicting(workload, model, inputs)
    step, state = stepping(workload, model)
    together = workload.execution if "execution" in options else 0
    called = jax.jit(_looped(step) if together else step, donate_argnums=0)
    rows_a_call = workload.batch * max(together, 1)

    def batches(order: np.ndarray) -> tuple[Any, Any]:
        def cut(array: np.ndarray) -> np.ndarray:
            rows = array[order]
            return rows.reshape(together, workload.batch, *rows.shape[1:]) if together else rows

        return jax.tree.map(cut, inputs), cut(labels)

    state, value = called(state, *batches(np.arange(rows_a_call)))
    value.block_until_ready()

    def round_of() -> float:
        nonlocal state
        order = np.random.permutation(workload.samples)
        start = time.perf_counter()
        for begin in range(0, workload.samples, rows_a_call):
            state, value = called(state, *batches(order[begin : begin + rows_a_call]))
        value.block_until_ready()
        return (time.perf_counter() - start) / workload.steps

    return round_of


def stepping(workload: Workload, model: Any) -> tuple[Callable[..., Any], Any]:
    """A training step, (state, inputs, labels) to (state, loss), and the first state."""
    optimizer = keras.optimizers.get(workload.optimizer)
    optimizer.build(model.trainable_variables)
    compared = loss_of(workload)

    def loss(trainable: Any, rest: Any, x: Any, y: Any) -> Any:
        predicted, rest, losses = model.stateless_call(trainable, rest, x, training=True, return_losses=True)
        return compared(y, predicted) + sum(losses), rest

    def step(state: Any, x: Any, y: Any) -> Any:
        trainable, rest, slots = state
        (value, rest), gradients = jax.value_and_grad(loss, has_aux=True)(trainable, rest, x, y)
        trainable, slots = optimizer.stateless_apply(slots, gradients, trainable)
        return (trainable, rest, slots), value

    kinds = (model.trainable_variables, model.non_trainable_variables, optimizer.variables)
    return step, tuple([variable.value for variable in kind] for kind in kinds)


def _looped(step: Callable[..., Any]) -> Callable[..., Any]:
    return lambda state, x, y: jax.lax.scan(lambda carried, batch: step(carried, *batch), state, (x, y))


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
