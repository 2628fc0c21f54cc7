"""Metrics and losses are built for the shapes that layers compute, without a call of the model before its trace."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import keras
import numpy as np
import pytest

from ipu.ipu_strategy import IPUStrategy

layers = keras.layers
ROWS = 4


class Counted(layers.Dense):
    """A layer that counts its calls with arrays of a step."""

    calls = 0

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        if inputs.shape[0] is not None:
            Counted.calls += 1
        return super().call(inputs, training)


def sequential() -> keras.Model:
    return keras.Sequential([layers.Input((6,)), Counted(3)])


def several() -> keras.Model:
    """Named inputs, of which the data has another order, and nested outputs."""
    b, a = layers.Input((6,), name="b"), layers.Input((2,), name="a")
    inner = keras.Sequential([layers.Input((6,)), Counted(3)])
    return keras.Model({"b": b, "a": a}, {"first": inner(b), "second": layers.Dense(1)(a)})


def flattened() -> keras.Model:
    """Outputs with other rows than inputs and labels."""
    given = layers.Input((6,))
    return keras.Model(given, keras.ops.reshape(Counted(6)(given), (-1, 3)))


def loss_of_flattened(y: Any, outputs: Any) -> Any:
    return keras.ops.mean(keras.ops.square(keras.ops.reshape(outputs, (ROWS, 6))[:, :3] - y), -1)


def trained(build: Callable[[], keras.Model], scope: Any) -> dict[str, float]:
    keras.utils.set_random_seed(1)
    Counted.calls = 0
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
def test_a_built_model_is_called_once(build: Callable[[], keras.Model]) -> None:
    received = trained(build, IPUStrategy().scope())
    assert Counted.calls == 1
    expected = trained(build, nullcontext())
    assert received.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(received[name], value, rtol=1e-5, err_msg=name)


def test_inputs_that_do_not_fit_raise_the_error_of_keras() -> None:
    with IPUStrategy().scope():
        model = sequential()
        model.compile("sgd", "mse")
        with pytest.raises(ValueError, match="expected axis -1 of input shape to have value 6"):
            model.fit(np.zeros((4, 5), np.float32), np.zeros((4, 3), np.float32), verbose=0)
