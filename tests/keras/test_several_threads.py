"""One model used from several threads: executions run one after the other, lose no step and share no memory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ipu.ipu_strategy import IPUStrategy
from tests.interrupting import PATIENCE_SECONDS
from tests.keras.helpers import Kit, data

FEATURES, STEPS, EPOCHS, STEP = 2000, 40, 2, 2.0**-10
"""Change of each weight by an update, without rounding."""


def counting_model(kit: Kit) -> Any:
    """Builds a model whose loss on ones is the sum of its weights; they begin at zero and change by -STEP a step."""
    keras = kit.keras
    with IPUStrategy().scope():
        layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
        model = keras.Sequential([keras.Input((FEATURES,)), layer])
        model.compile(keras.optimizers.SGD(STEP), lambda _, p: tf.reduce_mean(p), steps_per_execution=5)
    return model


def ones(batch: int) -> tuple[np.ndarray, np.ndarray]:
    return np.ones((STEPS * batch, FEATURES), np.float32), np.zeros((STEPS * batch, 1), np.float32)


def in_threads(*works: Callable[[], Any]) -> list[Any]:
    """The results of calls that begin at the same time; raises what one of them raises."""
    results: list[Any] = [None] * len(works)
    failures: list[BaseException] = []
    begin = threading.Barrier(len(works))

    def run(number: int) -> None:
        try:
            begin.wait(PATIENCE_SECONDS)
            results[number] = works[number]()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for failure in failures:
        raise failure
    return results


def test_no_step_of_two_fits_is_lost_and_nothing_is_seen_within_one(kit: Kit) -> None:
    model = counting_model(kit)
    model.fit(*ones(1), batch_size=1, verbose=0)  # Keras builds metrics and optimizers in one thread only
    sizes = (4, 4, 3)  # the last size is another program, with the same variables
    ended = threading.Event()
    seen: list[np.ndarray] = []
    running = [len(sizes)]

    def fit(batch: int) -> None:
        try:
            model.fit(*ones(batch), batch_size=batch, epochs=EPOCHS, verbose=0)
        finally:
            running[0] -= 1
            if not running[0]:
                ended.set()

    def look() -> None:
        while not ended.is_set():
            seen.append(model.layers[-1].kernel.numpy())
            seen.append(model.predict_on_batch(ones(1)[0]))

    in_threads(look, *(lambda batch=batch: fit(batch) for batch in sizes))
    steps = STEPS + len(sizes) * STEPS * EPOCHS
    assert int(model.optimizer.iterations.numpy()) == steps
    np.testing.assert_array_equal(model.get_weights()[0], np.float32(-STEP * steps))
    assert seen and all(len(np.unique(values)) == 1 for values in seen)


def test_predictions_from_several_threads(kit: Kit) -> None:
    model = kit.ipu_model(steps_per_execution=3)
    inputs = [data(60, seed)[0] for seed in range(4)]
    expected = [model.predict(x, batch_size=10, verbose=0) for x in inputs]

    def predict(x: np.ndarray) -> list[np.ndarray]:
        return [model.predict(x, batch_size=10, verbose=0) for _ in range(4)]

    for received, right in zip(in_threads(*(lambda x=x: predict(x) for x in inputs)), expected, strict=True):
        for each in received:
            np.testing.assert_array_equal(each, right)


def test_first_fits_of_a_model_that_is_not_built(kit: Kit) -> None:
    keras, steps = kit.keras, 6
    with IPUStrategy().scope():
        model = keras.Sequential([keras.layers.Dense(3), keras.layers.Dense(1)])
        model.compile("sgd", "mse", metrics=["mae"], steps_per_execution=steps)
    x = np.ones((4 * steps, 5), np.float32)
    in_threads(*(lambda: model.fit(x, x[:, :1], batch_size=4, verbose=0) for _ in range(3)))
    assert int(model.optimizer.iterations.numpy()) == 3 * steps


def test_fits_wait_for_the_optimizer_of_a_model_that_another_thread_trains() -> None:
    """Keras marks an optimizer as built before it creates its slots, a scope while it builds the layers."""
    threads: list[threading.Thread] = []
    found: list[int] = []

    def train() -> None:
        model.train_on_batch(x, x[:, :1])
        found.append(len(model.optimizer.variables))

    class Slow(keras.optimizers.SGD):
        def add_optimizer_variables(self, *arguments: Any, **named: Any) -> Any:
            threads.append(threading.Thread(target=train))
            threads[-1].start()
            threads[-1].join(0.1)
            return super().add_optimizer_variables(*arguments, **named)

    x = np.ones((4, 5), np.float32)
    with IPUStrategy().scope():
        model = keras.Sequential([keras.layers.Dense(1)])
        model.compile(Slow(momentum=0.5), "mse")
    train()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert len(threads) == 1 and found == [4, 4], "iterations, rate, and a slot for each variable"
    assert int(model.optimizer.iterations.numpy()) == 2


def test_variables_of_an_optimizer_are_made_by_the_first_update(kit: Kit) -> None:
    """A checkpoint written before holds no slots, so restoring it later keeps the slots that exist then."""
    keras, x = kit.keras, np.ones((8, 5), np.float32)

    def made() -> list[int]:
        model = keras.Sequential([keras.layers.Input((5,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(momentum=0.5), "mse")
        optimizer, counts = model.optimizer, []
        for action in (
            lambda: model.evaluate(x, x[:, :1], verbose=0),
            lambda: model.predict(x, verbose=0),
            lambda: model.fit(x, x[:, :1], verbose=0),
        ):
            action()
            listed = optimizer.variables() if callable(optimizer.variables) else optimizer.variables
            counts.append(len(listed))
        return counts

    plain = made()
    with IPUStrategy().scope():
        assert made() == plain
