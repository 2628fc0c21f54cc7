"""`model.fit` and its kin: on TensorFlow, or on the software IPU in a strategy's scope."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import keras
import numpy as np

from benchmarks import models
from benchmarks.workloads import APPLICATIONS, Workload


def scope_of(rival: str) -> Any:
    """The strategy's scope for "ipu", else none. The import is here because loading the software IPU is timed."""
    if rival != "ipu":
        return nullcontext()
    from tensorflow.python import ipu

    return ipu.ipu_strategy.IPUStrategy().scope()


@contextmanager
def dtype_policy(name: str) -> Iterator[None]:
    """Creates layers with this dtype policy while the context is open."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(name)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def loss_of(workload: Workload) -> keras.losses.Loss:
    """The loss of a workload, from logits."""
    losses = keras.losses
    kind = losses.SparseCategoricalCrossentropy if workload.loss == "categories" else losses.BinaryCrossentropy
    return kind(from_logits=True)


def prepare(workload: Workload, rival: str, options: list[str], inputs: Any, labels: np.ndarray) -> Callable[[], float]:
    """Builds the model and runs its first execution; a round is an epoch, and returns its seconds per step."""
    keras.ops.convert_to_tensor(0)  # TensorFlow's own start is not timed for any way
    single = "single" in options or (rival != "ipu" and "execution" not in options)
    together = 1 if single else workload.execution
    scope = scope_of(rival)
    if rival == "ipu" and workload.name in APPLICATIONS:
        from ipu import allow_out_of_memory

        allow_out_of_memory()
    with scope, dtype_policy(workload.policy):
        model = getattr(models, workload.model)(*workload.arguments)
        model.compile(
            optimizer=keras.optimizers.get(workload.optimizer),
            loss=loss_of(workload),
            metrics=["accuracy"] if workload.loss == "categories" else [],
            steps_per_execution=together,
            jit_compile="jit" in options,
        )
    return {"fit": _fitting, "predict": _predicting, "latency": _waiting}[workload.kind](
        workload, model, inputs, labels, together
    )


class Clock(keras.callbacks.Callback):
    """Notes the end of each execution."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.ends: list[tuple[int, float]] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.ends.append((batch, time.perf_counter()))

    on_predict_batch_end = on_train_batch_end

    def seconds_per_step(self) -> float:
        (first, start), (last, end) = self.ends[0], self.ends[-1]
        return (end - start) / max(last - first, 1)


def rows_of(inputs: Any, start: int, stop: int) -> Any:
    """The samples from start to stop, of each array if inputs are a list."""
    return [each[start:stop] for each in inputs] if isinstance(inputs, list) else inputs[start:stop]


def _fitting(workload: Workload, model: Any, inputs: Any, labels: np.ndarray, together: int) -> Callable[[], float]:
    first = workload.batch * together
    model.fit(rows_of(inputs, 0, first), labels[:first], batch_size=workload.batch, verbose=0)
    clock = Clock()

    def round_of() -> float:
        model.fit(inputs, labels, batch_size=workload.batch, verbose=0, callbacks=[clock])
        return clock.seconds_per_step()

    return round_of


def _predicting(workload: Workload, model: Any, inputs: Any, labels: np.ndarray, together: int) -> Callable[[], float]:
    model.predict(rows_of(inputs, 0, workload.batch * together), batch_size=workload.batch, verbose=0)

    def round_of() -> float:
        start = time.perf_counter()
        model.predict(inputs, batch_size=workload.batch, verbose=0)
        return (time.perf_counter() - start) / workload.steps

    return round_of


def _waiting(workload: Workload, model: Any, inputs: Any, labels: np.ndarray, together: int) -> Callable[[], float]:
    single = [rows_of(inputs, row, row + 1) for row in range(workload.steps)]
    model.predict_on_batch(single[0])

    def round_of() -> float:
        start = time.perf_counter()
        for each in single:
            model.predict_on_batch(each)
        return (time.perf_counter() - start) / workload.steps

    return round_of
