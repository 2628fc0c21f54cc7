"""Updates of optimizers as they are traced for the engine: Keras' bits from half of the operations."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from ipu._internal.compiler import trace
from ipu.ipu_strategy import IPUStrategy
from keras_ext.frameworks import whole_updates

optimizers = keras.optimizers


class RatesByLayer(optimizers.Adam):
    """An Adam whose rates and betas differ between variables."""

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        self.beta_1 = 0.9 - 0.1 * len(variable.shape)
        super().update_step(gradient, variable, learning_rate * variable.shape[-1])


OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "decay of weights, schedule": lambda: optimizers.AdamW(optimizers.schedules.ExponentialDecay(1e-2, 3, 0.9)),
    "rates by layer": lambda: RatesByLayer(1e-3),
    "accumulation in a branch": lambda: optimizers.Adam(1e-2, gradient_accumulation_steps=2),
    "rmsprop of a schedule": lambda: optimizers.RMSprop(optimizers.schedules.ExponentialDecay(1e-2, 3, 0.9), rho=0.8),
    "rmsprop, momentum": lambda: optimizers.RMSprop(1e-2, momentum=0.9),
    "rmsprop, centered": lambda: optimizers.RMSprop(1e-2, centered=True),
    "rmsprop, both": lambda: optimizers.RMSprop(1e-2, momentum=0.9, centered=True),
    "adadelta": lambda: optimizers.Adadelta(1.0, weight_decay=0.1),
}
EACH: dict[str, Callable[[], Any]] = {
    "plain": lambda: optimizers.Adam(1e-2),
    "lion": lambda: optimizers.Lion(1e-2, weight_decay=0.1),
    "adagrad": lambda: optimizers.Adagrad(1e-1, epsilon=1e-3),
    "rmsprop": optimizers.RMSprop,
    "momentum": lambda: optimizers.SGD(optimizers.schedules.ExponentialDecay(1e-2, 3, 0.9), momentum=0.9),
    "nesterov": lambda: optimizers.SGD(1e-2, momentum=0.9, nesterov=True),
    "nadam": lambda: optimizers.Nadam(1e-2),
}
OPTIMIZERS |= {
    "sgd": lambda: optimizers.SGD(1e-2),
    "sgd of float64 momentum": lambda: optimizers.SGD(1e-2, momentum=np.float64(0.9)),
    "nadam of a schedule": lambda: optimizers.Nadam(optimizers.schedules.ExponentialDecay(1e-2, 3, 0.9), epsilon=1e-3),
}
FEWER = {"plain": 10, "rmsprop": 4, "momentum": 1, "nesterov": 3, "nadam": 18}
"""Least number of operations that are saved for each variable."""


def trained(make: Callable[[], Any], operations: list[int], monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """The weights and the optimizer's variables after some steps; appends the count of the step's operations."""
    bind = trace.bind

    def counted(concrete: Any, used: Any) -> Any:
        operations.append(len(concrete.graph.get_operations()))
        return bind(concrete, used)

    monkeypatch.setattr(trace, "bind", counted)
    keras.utils.set_random_seed(1)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(24, 5)).astype(np.float32), rng.normal(size=(24, 2)).astype(np.float32)
    with IPUStrategy().scope():
        model = keras.Sequential([keras.layers.Input((5,)), *(keras.layers.Dense(n, "tanh") for n in (6, 6, 2))])
        model.compile(make(), "mse", steps_per_execution=3)
        model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
    monkeypatch.undo()
    return [*model.get_weights(), *(each.numpy() for each in model.optimizer.variables)]


@pytest.mark.parametrize("name", EACH)
def test_bits_of_each_optimizer_are_those_of_keras(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check(name, EACH[name], monkeypatch)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["momentum", "nadam", "plain", "lion", "adagrad", "rmsprop"])
def test_bits_of_float64_are_those_of_keras(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keras rounds some numbers through float32, and some not."""
    usual = keras.config.floatx()
    keras.config.set_floatx("float64")
    try:
        check(name, EACH[name], monkeypatch)
    finally:
        keras.config.set_floatx(usual)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_bits_are_those_of_keras(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check(name, OPTIMIZERS[name], monkeypatch)


def check(name: str, make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    operations: list[int] = []
    ours = trained(make, operations, monkeypatch)
    monkeypatch.setattr(whole_updates, "applying", contextlib.nullcontext)
    theirs = trained(make, operations, monkeypatch)
    for received, expected in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(received, expected)
    if name in FEWER:
        assert operations[0] < operations[1] - FEWER[name] * 6  # for each of six variables


def test_two_applications_in_one_function_have_their_own_corrections() -> None:
    gradient = tf.constant([1.0, -2.0, 3.0])

    def trained_by(step: Callable[[Any], Any]) -> np.ndarray:
        with IPUStrategy().scope() as strategy:
            optimizer, variable = optimizers.Adam(0.1), keras.Variable(np.ones(3, np.float32))
            optimizer.build([variable])
        step((strategy, optimizer, variable))
        return np.asarray(variable.numpy())

    def twice_in_one(parts: Any) -> None:
        strategy, optimizer, variable = parts

        @tf.function(jit_compile=True)
        def both() -> None:
            optimizer.apply([gradient], [variable])
            optimizer.apply([gradient * gradient], [variable])

        strategy.run(both)

    def one_by_one(parts: Any) -> None:
        _, optimizer, variable = parts
        optimizer.apply([gradient], [variable])
        optimizer.apply([gradient * gradient], [variable])

    np.testing.assert_allclose(trained_by(twice_in_one), trained_by(one_by_one), rtol=1e-6)
