"""A variable has one value: the engine reads what was written, and readers get the engine's results."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from ipu.ipu_strategy import IPUStrategy
from tests.keras.helpers import Kit, assert_close, both_frameworks, data
from tests.keras.variable_accesses import READERS, WRITERS, model_of_kernels

X, Y = data()
PLAIN = WRITERS["assign_tensor"]


def _values(count: int, seed: int) -> list[np.ndarray]:
    return list(np.random.default_rng(seed).normal(size=(count, 5, 5)).astype(np.float32) / 10)


def _kernels(kit: Kit, model: Any) -> list[Any]:
    return [kit.variable(layer.kernel) for layer in model.layers if layer.name.startswith("kernel")]


def _made(ways: Iterable[Callable[[Any], Any]], kit: Kit, model: Any) -> list[Any]:
    return [make(each) for make, each in zip(ways, _kernels(kit, model), strict=True)]


@both_frameworks
@pytest.mark.parametrize("first", ["host", "engine"])
def test_the_engine_has_what_was_written(kit: Kit, first: str) -> None:
    """Each kernel of the model is written in another way, made before or after the engine's first execution."""

    def program(model: Any, writers: list[Any]) -> Any:
        made = _made(writers, kit, model) if first == "host" else []
        results: list[Any] = [model.fit(X, Y, batch_size=8, shuffle=False, verbose=0).history["loss"]]
        made = made or _made(writers, kit, model)
        for seed, run in enumerate(("evaluate", "fit", "predict", "fit")):
            for write, value in zip(made, _values(len(made), seed), strict=True):
                write(value)
            if run == "fit":
                results.append(model.fit(X, Y, batch_size=8, shuffle=False, verbose=0).history["loss"])
            else:
                results.append(getattr(model, run)(X, *([Y] if run == "evaluate" else []), batch_size=8, verbose=0))
            results.append(model.get_weights())
        return results

    plain = kit.compiled(model_of_kernels(kit, len(WRITERS)))
    with IPUStrategy().scope():
        model = kit.compiled(model_of_kernels(kit, len(WRITERS)))
    model.set_weights(plain.get_weights())
    expected = program(plain, [PLAIN] * len(WRITERS))
    assert_close(program(model, list(WRITERS.values())), expected)


@both_frameworks
@pytest.mark.parametrize("first", ["host", "engine"])
def test_doors_have_what_the_engine_computed(kit: Kit, first: str) -> None:
    plain = kit.compiled(model_of_kernels(kit, len(READERS)))
    with IPUStrategy().scope():
        model = kit.compiled(model_of_kernels(kit, len(READERS)))
    model.set_weights(plain.get_weights())
    made: list[Any] = []
    for _ in range(3):
        if first == "host" and not made:
            made = _made(READERS.values(), kit, model)
        for each in (plain, model):
            each.fit(X, Y, batch_size=8, shuffle=False, verbose=0)
        made = made or _made(READERS.values(), kit, model)
        for read, variable in zip(made, _kernels(kit, plain), strict=True):
            assert_close(np.asarray(read()), variable.numpy())


def _fit(model: Any) -> Any:
    return model.fit(X, Y, batch_size=8, shuffle=False, verbose=0).history["loss"]


def test_functions_that_the_trace_of_a_step_made_first(kit: Kit) -> None:
    """A user's function is traced once, within the engine's trace, and later called outside of it."""
    calls: list[Callable[[Any], Any]] = []

    def build() -> Any:
        scale = tf.Variable(1.0)
        calls.append(tf.function(lambda by: scale.assign_add(by)))

        class Scaled(kit.Subclassed):  # type: ignore[name-defined]
            def call(self, inputs: Any, training: bool = False) -> Any:
                return super().call(inputs * scale)

            def train_step(self, data: Any) -> Any:
                calls[-1](tf.constant(0.25))
                return super().train_step(data)

        return Scaled()

    def program(model: Any) -> Any:
        return [(_fit(model), calls[-1](1.0).numpy(), model.predict(X, verbose=0)) for _ in range(2)]

    kit.assert_same(program, build)


def test_functions_that_keras_traced_for_its_shapes(kit: Kit) -> None:
    layers = kit.keras.layers

    class Counting(layers.Layer):  # type: ignore[misc]
        def build(self, shape: Any) -> None:
            self.rows = self.add_weight(name="rows", shape=(), initializer="zeros", trainable=False)
            self.variable = kit.variable(self.rows)

        @tf.function
        def counted(self, x: Any) -> Any:
            return x + 0.1 * self.variable.assign_add(1.0)

        def call(self, inputs: Any) -> Any:
            return self.counted(inputs)

    def build() -> Any:
        inputs = kit.keras.Input((5,))
        return kit.keras.Model(inputs, layers.Dense(3, "softmax")(Counting()(inputs)))

    def program(model: Any) -> Any:
        results: list[Any] = []
        for _ in range(2):
            results.append(_fit(model))
            model(X)
            results.append(model.predict(X, batch_size=8, verbose=0))
            model.layers[1].counted(tf.constant(X))
            results.append(model.evaluate(X, Y, batch_size=8, verbose=0)[0])
        return results

    kit.assert_same(program, build)


def test_a_layer_of_two_models_and_a_function(kit: Kit) -> None:
    layers = kit.keras.layers

    def program(model: Any) -> Any:
        shared = model.layers[1]
        other = kit.keras.Model(model.inputs, layers.Dense(3, "softmax", kernel_initializer="ones")(shared.output))
        kit.compiled(other, run_eagerly=model.run_eagerly, optimizer="adam")
        halve = tf.function(lambda: kit.variable(shared.kernel).assign(kit.variable(shared.kernel) / 2))
        results: list[Any] = []
        for _ in range(2):
            results += [_fit(model), _fit(other), halve().numpy(), other.predict(X, verbose=0), _fit(model)]
            shared.kernel.assign(shared.kernel * 1.5)
            results += [_fit(other), model.evaluate(X, Y, verbose=0)]
        return [*results, *other.get_weights()]

    kit.assert_same(program, kit.functional)


def test_state_of_optimizers_and_metrics(kit: Kit) -> None:
    def program(model: Any) -> Any:
        results: list[Any] = [_fit(model)]
        step, slot = (kit.variable(each) for each in (model.optimizer.iterations, model.optimizer.variables[-1]))
        total = kit.variable(model.metrics[0].variables[0])
        handle, grow = step.handle, tf.function(lambda: slot.assign(slot * 2.0 + 0.1))
        add = tf.function(lambda: total.assign_add(1.0))
        for _ in range(2):
            tf.raw_ops.AssignAddVariableOp(resource=handle, value=tf.constant(100, step.dtype))
            grow()
            results += [_fit(model), int(step.numpy()), slot.numpy(), add().numpy()]
        del grow, add
        gc.collect()
        return [*results, _fit(model), slot.numpy(), int(model.optimizer.iterations)]

    kit.assert_same(program, optimizer=lambda: kit.keras.optimizers.Adam(0.05))


def test_checkpoints_restored_before_and_after_executions(kit: Kit, tmp_path: Path) -> None:
    model = kit.ipu_model(kit.sequential)
    _fit(model)
    expected = model.get_weights()
    path = tf.train.Checkpoint(model=model).save(str(tmp_path / "checkpoint"))
    _fit(model)
    with IPUStrategy().scope():
        later = kit.unbuilt()
    checkpoint = tf.train.Checkpoint(model=later)
    checkpoint.restore(path)
    with IPUStrategy().scope():
        later.build((None, 5))
    assert_close(later.get_weights(), expected)
    kit.compiled(later)
    _fit(later)
    checkpoint.restore(path).expect_partial()
    assert_close(later.predict(X, verbose=0), later(X))
    assert_close(later.get_weights(), expected)
