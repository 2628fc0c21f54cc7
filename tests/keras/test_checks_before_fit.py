"""Numbers of steps and batches that cannot work are refused before anything is trained, with the nearest that can."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from engine.errors import StepCountError
from ipu.ipu_strategy import IPUStrategy
from tests.keras.helpers import Kit
from tests.keras.micro_batches import configure

BATCH = 2


def model_of(kit: Kit, accumulation: int, **compilation: Any) -> Any:
    keras = kit.keras
    with IPUStrategy().scope():
        model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1, use_bias=False)])
        model.compile(keras.optimizers.SGD(0.1), lambda y, prediction: prediction, **compilation)
    if accumulation > 1:
        model.set_gradient_accumulation_options(accumulation)
    return model


def rows(number: int) -> tuple[np.ndarray, np.ndarray]:
    return np.ones((number, 1), np.float32), np.ones((number, 1), np.float32)


def dataset(number: int) -> Any:
    """Batches made as programs make them: mapped and prefetched."""
    batches = tf.data.Dataset.from_tensor_slices(rows(number)).batch(BATCH)
    return batches.map(lambda x, y: (2 * x, y), num_parallel_calls=2).prefetch(2)


def begun(kit: Kit, model: Any, *data: Any, error: type[Exception] = StepCountError, match: str, **fit: Any) -> None:
    """Asserts that `fit` raises before its callbacks are told that training begins."""
    begins: list[Any] = []
    callback = kit.keras.callbacks.LambdaCallback(on_train_begin=begins.append)
    if not isinstance(data[0], tf.data.Dataset):
        fit = {"batch_size": BATCH, **fit}
    with pytest.raises(error, match=match) as caught:
        model.fit(*data, shuffle=False, verbose=0, callbacks=[callback], **fit)
    assert isinstance(caught.value, ValueError)
    assert not begins


@pytest.mark.parametrize("kind", ["arrays", "dataset"])
@pytest.mark.parametrize(
    ("replicas", "accumulation", "steps", "batches", "error", "match"),
    [
        (1, 4, 6, 24, RuntimeError, "steps_per_execution=6.*=4. Nearest legal values of steps_per_execution: 4 or 8"),
        (1, 4, 1, 24, RuntimeError, "steps_per_execution=1.*Nearest legal values of steps_per_execution: 4"),
        (2, 3, 8, 48, RuntimeError, "steps_per_execution=8.*=3. Nearest legal values of steps_per_execution: 6 or 9"),
        (1, 4, 8, 18, RuntimeError, "18 steps.*=4. Nearest legal numbers of steps: 16 or 20"),
        (1, 4, 8, 3, RuntimeError, "3 steps.*=4. Nearest legal numbers of steps: 4. Change"),
        (2, 4, 4, 20, RuntimeError, r"10 steps.*=4. .*steps: 8 or 12 \(16 or 24 batches for all 2 replicas\)"),
        (4, 1, 1, 3, StepCountError, "at least one batch for each of 4 replicas. Received: .* 3"),
    ],
)
def test_executions_are_whole_updates(
    kit: Kit, kind: str, replicas: int, accumulation: int, steps: int, batches: int, error: type, match: str
) -> None:
    configure(replicas)
    model = model_of(kit, accumulation, steps_per_execution=steps)
    data = rows(BATCH * batches) if kind == "arrays" else (dataset(BATCH * batches),)
    begun(kit, model, *data, error=error, match=match)


@pytest.mark.parametrize(("replicas", "accumulation"), [(2, 1), (1, 2)])
@pytest.mark.parametrize("kind", ["arrays", "dataset"])
def test_a_partial_batch(kit: Kit, kind: str, replicas: int, accumulation: int) -> None:
    configure(replicas)
    model = model_of(kit, accumulation, steps_per_execution=2)
    data = rows(BATCH * 5 + 1) if kind == "arrays" else (dataset(BATCH * 5 + 1),)
    begun(kit, model, *data, match="a batch of 1 samples after batches of 2.*drop_remainder=True")
    if kind == "dataset":
        model.fit(*data, steps_per_epoch=4, shuffle=False, verbose=0)  # does not get so far
    configure(1)
    model.set_gradient_accumulation_options(1)
    model.fit(*data, shuffle=False, verbose=0, **({"batch_size": BATCH} if kind == "arrays" else {}))


def test_a_larger_execution_than_the_epoch_counts_as_the_epoch(kit: Kit) -> None:
    model = model_of(kit, 4, steps_per_execution=50)
    model.fit(dataset(BATCH * 8), epochs=2, shuffle=False, verbose=0)
    assert int(kit.variable(model.optimizer.iterations).numpy()) == 4


def test_validation_data_are_not_accumulated(kit: Kit) -> None:
    model = model_of(kit, 4, steps_per_execution=4)
    fitted = model.fit(dataset(BATCH * 4), validation_data=dataset(BATCH * 2 + 1), shuffle=False, verbose=0)
    assert "val_loss" in fitted.history
    model.evaluate(dataset(BATCH * 3 + 1), verbose=0)
    assert model.predict(dataset(BATCH * 3 + 1), verbose=0).shape == (BATCH * 3 + 1, 1)


def test_data_of_unknown_length_are_checked_when_they_end(kit: Kit) -> None:
    """Keras asks for the steps of data of unknown length, and fewer come."""
    model = model_of(kit, 2, steps_per_execution=2)
    batches = dataset(BATCH * 3).filter(lambda x, y: True)
    with pytest.raises(RuntimeError, match="a multiple of 2 batches.*Received: 1. Nearest legal numbers: 2"):
        model.fit(batches, steps_per_epoch=4, shuffle=False, verbose=0)
    assert int(kit.variable(model.optimizer.iterations).numpy()) == 1


def test_train_on_batch_says_what_to_do(kit: Kit) -> None:
    model = model_of(kit, 2)
    with pytest.raises(RuntimeError, match="train_on_batch gives one: call fit on the batches of an update"):
        model.train_on_batch(*rows(BATCH))
    model.set_gradient_accumulation_options(None)
    model.train_on_batch(*rows(BATCH))


@pytest.mark.parametrize("kind", ["arrays", "dataset"])
@pytest.mark.parametrize(
    ("samples", "steps", "match"),
    [
        (BATCH * 2 + 1, None, "batch of 1 samples after batches of 2"),
        (BATCH, None, "at least one batch for each of 2 replicas. Received: .* 1"),
        (BATCH * 4, 1, "at least one batch for each of 2 replicas. Received: .* 1"),
    ],
)
def test_validation_data(kit: Kit, kind: str, samples: int, steps: int | None, match: str) -> None:
    configure(2)
    data = rows(samples) if kind == "arrays" else dataset(samples)
    begun(kit, model_of(kit, 1), *rows(BATCH * 4), validation_data=data, validation_steps=steps, match=match)
