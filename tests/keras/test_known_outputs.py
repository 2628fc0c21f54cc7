"""Metrics and losses are built for the shapes that layers compute, without a call of the model before its trace."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import keras
import numpy as np
import pytest

from ipu.ipu_strategy import IPUStrategy

layers = keras.layers
dense = layers.Dense.call
ROWS = 4
CLASSES = 3


def sequential() -> keras.Model:
    return keras.Sequential([layers.Input((6,)), layers.Dense(3)])


def several() -> keras.Model:
    """A model with nested outputs and named inputs, which the data have in another order."""
    b, a = layers.Input((6,), name="b"), layers.Input((2,), name="a")
    inner = keras.Sequential([layers.Input((6,)), layers.Dense(3)])
    return keras.Model({"b": b, "a": a}, {"first": inner(b), "second": layers.Dense(1)(a)})


def flattened() -> keras.Model:
    """Outputs with other rows than inputs and labels."""
    given = layers.Input((6,))
    return keras.Model(given, keras.ops.reshape(layers.Dense(6)(given), (-1, 3)))


def loss_of_flattened(y: Any, outputs: Any) -> Any:
    return keras.ops.mean(keras.ops.square(keras.ops.reshape(outputs, (ROWS, 6))[:, :3] - y), -1)


def trained(build: Callable[[], keras.Model], scope: Any) -> dict[str, float]:
    keras.utils.set_random_seed(1)
    rng = np.random.default_rng(0)
    x, a, y = (rng.normal(size=(2 * ROWS, n)).astype(np.float32) for n in (6, 2, 3))
    with scope:
        model = build()
        if build is several:
            model.compile("sgd", "mse", metrics={"first": ["mae"], "second": ["mse"]})
            history = model.fit(
                {"a": a, "b": x}, {"first": y, "second": a[:, :1]}, batch_size=ROWS, shuffle=False, verbose=0
            )
        else:
            model.compile("sgd", loss_of_flattened if build is flattened else "mse")
            history = model.fit(x, y, batch_size=ROWS, shuffle=False, verbose=0)
    return {name: values[-1] for name, values in history.history.items()}


@pytest.mark.parametrize("build", [sequential, several, flattened])
def test_a_built_model_is_called_once(build: Callable[[], keras.Model], monkeypatch: pytest.MonkeyPatch) -> None:
    widths: list[int] = []

    def counted(layer: layers.Dense, inputs: Any, training: bool | None = None) -> Any:
        if inputs.shape[0] is not None and inputs.shape[-1] == 6:
            widths.append(layer.units)
        return dense(layer, inputs, training)

    monkeypatch.setattr(layers.Dense, "call", functools.wraps(dense)(counted))
    received = trained(build, IPUStrategy().scope())
    assert len(widths) == 1
    monkeypatch.undo()
    expected = trained(build, nullcontext())
    assert received.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(received[name], value, rtol=1e-5, err_msg=name)


def classes_of(logit: Any) -> Any:
    """Probabilities of the classes, from one number a row."""
    return keras.ops.softmax(keras.ops.concatenate([logit, -logit, 2 * logit], -1))


class InheritsShapes(layers.Dense):
    def call(self, inputs: Any, training: bool | None = None) -> Any:
        return classes_of(super().call(inputs))


class StatesOthers(layers.Layer):
    def call(self, inputs: Any) -> Any:
        return classes_of(inputs[:, :1])

    def compute_output_shape(self, input_shape: Any) -> Any:
        return input_shape[0], 1


class Cell(layers.SimpleRNNCell):
    """A cell whose outputs are wider than its state."""

    def call(self, sequence: Any, states: Any, training: bool = False) -> Any:
        output, states = super().call(sequence, states, training)
        return classes_of(output), states


class Subclassed(keras.Sequential):
    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        return classes_of(super().call(inputs, training, mask))


def with_another_call() -> keras.layers.Layer:
    layer = layers.Dense(1)
    call = layer.call
    layer.call = lambda inputs, training=None: classes_of(call(inputs))
    return layer


LAYERS: dict[str, Callable[[], list[Any]]] = {
    "inherited": lambda: [InheritsShapes(1)],
    "stated": lambda: [StatesOthers()],
}
MORE: dict[str, Callable[[], list[Any]]] = {
    "activation": lambda: [layers.Dense(1, classes_of)],
    "lambda": lambda: [layers.Lambda(lambda x: classes_of(x[:, :1]), output_shape=(1,))],
    "replaced in an instance": lambda: [with_another_call()],
    "nested": lambda: [keras.Sequential([layers.Input((3,)), InheritsShapes(1)])],
    "nested subclass": lambda: [Subclassed([layers.Input((3,)), layers.Dense(1)])],
    "wrapped": lambda: [
        layers.Reshape((1, 3)),
        layers.TimeDistributed(InheritsShapes(1)),
        layers.GlobalMaxPooling1D(),
    ],
    "cell": lambda: [layers.Reshape((1, 3)), layers.RNN(Cell(1))],
}


@pytest.mark.parametrize("name", LAYERS)
def test_shapes_that_layers_state_are_believed_of_keras_alone(name: str) -> None:
    check_accuracy(LAYERS[name])


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", MORE)
def test_shapes_of_compositions_are_believed_of_keras_alone(name: str) -> None:
    check_accuracy(MORE[name])


def check_accuracy(build: Callable[[], list[Any]]) -> None:
    """Asserts that the outputs' shape chooses between the accuracies of three classes and of one column."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(64, 3)).astype(np.float32), rng.integers(0, CLASSES, (64, 1))

    def accuracy(scope: Any) -> float:
        keras.utils.set_random_seed(1)
        with scope:
            model = keras.Sequential([layers.Input((3,)), *build()])
            model.compile("sgd", loss_of_classes, metrics=["accuracy"])
            return float(model.evaluate(x, y, batch_size=32, verbose=0)[1])

    assert accuracy(IPUStrategy().scope()) == accuracy(nullcontext()) > 0


def loss_of_classes(y: Any, outputs: Any) -> Any:
    return keras.ops.sum(outputs, -1) + keras.ops.cast(y[:, 0], outputs.dtype)


def test_inputs_that_do_not_fit_raise_the_error_of_keras() -> None:
    with IPUStrategy().scope():
        model = sequential()
        model.compile("sgd", "mse")
        with pytest.raises(ValueError, match="expected axis -1 of input shape to have value 6"):
            model.fit(np.zeros((4, 5), np.float32), np.zeros((4, 3), np.float32), verbose=0)


@pytest.mark.parametrize("scope", [nullcontext, lambda: IPUStrategy().scope()], ids=["plain", "ipu"])
def test_a_first_trace_that_fails_leaves_metrics_unbuilt(scope: Callable[[], Any]) -> None:
    x, y = np.ones((4, 6), np.float32), np.ones((4, 3), np.float32)
    with scope():
        model = sequential()
        model.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae"])
        other = keras.optimizers.SGD(0.1, momentum=0.9)
        other.build([keras.Variable(1.0)])
        model.optimizer = other
        for labels in (None, y):
            with pytest.raises(ValueError, match="Unknown variable|None values|No loss"):
                model.fit(x, labels, verbose=0)
        assert [len(metric.variables) for metric in model.metrics] == [2, 0]
        model.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae"])
        model.fit(x, y, verbose=0)
    assert [len(metric.variables) for metric in model.metrics] == [2, 2]
