"""Small models and data, and the comparison of a program on Keras alone with the same on the IPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from ipu.ipu_strategy import IPUStrategy

FEATURES = 5
CLASSES = 3
TOLERANCE = 2e-5


def data(samples: int = 24, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Features float32 [samples, 5] and labels int64 [samples]."""
    generator = np.random.default_rng(seed)
    features = generator.normal(size=(samples, FEATURES)).astype(np.float32)
    return features, generator.integers(0, CLASSES, samples)


def sequential() -> keras.Model:
    return keras.Sequential(
        [
            keras.layers.Input((FEATURES,)),
            keras.layers.Dense(6, "relu"),
            keras.layers.Dense(CLASSES, "softmax"),
        ]
    )


def unbuilt() -> keras.Model:
    return keras.Sequential([keras.layers.Dense(6, "tanh"), keras.layers.Dense(CLASSES, "softmax")])


def functional() -> keras.Model:
    inputs = keras.Input((FEATURES,))
    hidden = keras.layers.BatchNormalization()(keras.layers.Dense(6, "relu")(inputs))
    joined = keras.layers.Concatenate()([hidden, inputs])
    return keras.Model(inputs, keras.layers.Dense(CLASSES, "softmax")(joined))


class Subclassed(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = keras.layers.Dense(6, "sigmoid")
        self.head = keras.layers.Dense(CLASSES, "softmax")

    def call(self, inputs: Any, training: bool = False) -> Any:
        return self.head(self.hidden(inputs))


def compiled(model: keras.Model, **arguments: Any) -> keras.Model:
    """The model, compiled with momentum SGD and accuracy unless told otherwise."""
    settings = {
        "optimizer": keras.optimizers.SGD(0.1, momentum=0.9),
        "loss": "sparse_categorical_crossentropy",
        "metrics": ["accuracy"],
    }
    model.compile(**{**settings, **arguments})
    return model


def ipu_model(build: Callable[[], keras.Model] = sequential, **arguments: Any) -> keras.Model:
    """A compiled model of an IPUStrategy."""
    with IPUStrategy().scope():
        return compiled(build(), **arguments)


def assert_same(
    program: Callable[[keras.Model], Any], build: Callable[[], keras.Model] = sequential, **compilation: Any
) -> None:
    """Runs `program(model)` on plain Keras and on the IPU; results and weights must agree."""
    keras.utils.set_random_seed(3)
    plain = compiled(build(), **_fresh(compilation))
    expected = program(plain)
    keras.utils.set_random_seed(3)
    with IPUStrategy().scope():
        model = compiled(build(), **_fresh(compilation))
        received = program(model)
    assert_close(received, expected)
    assert_close(model.get_weights(), plain.get_weights())


def _fresh(compilation: dict[str, Any]) -> dict[str, Any]:
    """Optimizers hold state, so each model gets its own."""
    made = {}
    for name, value in compilation.items():
        made[name] = value() if callable(value) and name in ("optimizer", "metrics", "weighted_metrics") else value
    return made


def assert_close(received: Any, expected: Any) -> None:
    """Compares nested results of Keras calls."""
    if isinstance(expected, dict):
        assert set(received) == set(expected)
        for key in expected:
            assert_close(received[key], expected[key])
    elif isinstance(expected, list | tuple):
        assert len(received) == len(expected)
        for one, other in zip(received, expected, strict=True):
            assert_close(one, other)
    else:
        np.testing.assert_allclose(received, expected, rtol=TOLERANCE, atol=TOLERANCE)
