"""Small models and data, and the comparison of a program on Keras alone with the same program on the IPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from types import ModuleType
from typing import Any

import keras
import numpy as np
import pytest
import tf_keras

from ipu.ipu_strategy import IPUStrategy

FEATURES = 5
CLASSES = 3
TOLERANCE = 2e-5
MODELS = ("sequential", "unbuilt", "functional", "Subclassed")


def data(samples: int = 24, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Features float32 [samples, 5] and labels int64 [samples]."""
    generator = np.random.default_rng(seed)
    features = generator.normal(size=(samples, FEATURES)).astype(np.float32)
    return features, generator.integers(0, CLASSES, samples)


class Kit:
    """Models of MODELS for one Keras, by name, and functions that compile and compare them."""

    def __init__(self, keras: ModuleType) -> None:
        self.keras = keras

    @property
    def is_keras3(self) -> bool:
        return self.keras is keras

    def sequential(self) -> Any:
        layers = self.keras.layers
        return self.keras.Sequential(
            [layers.Input((FEATURES,)), layers.Dense(6, "relu"), layers.Dense(CLASSES, "softmax")]
        )

    def unbuilt(self) -> Any:
        layers = self.keras.layers
        return self.keras.Sequential([layers.Dense(6, "tanh"), layers.Dense(CLASSES, "softmax")])

    def functional(self) -> Any:
        layers = self.keras.layers
        inputs = self.keras.Input((FEATURES,))
        hidden = layers.BatchNormalization()(layers.Dense(6, "relu")(inputs))
        joined = layers.Concatenate()([hidden, inputs])
        return self.keras.Model(inputs, layers.Dense(CLASSES, "softmax")(joined))

    @cached_property
    def Subclassed(self) -> type:
        layers = self.keras.layers

        class Subclassed(self.keras.Model):  # type: ignore[name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.hidden = layers.Dense(6, "sigmoid")
                self.head = layers.Dense(CLASSES, "softmax")

            def call(self, inputs: Any, training: bool = False) -> Any:
                return self.head(self.hidden(inputs))

        return Subclassed

    def compiled(self, model: Any, **arguments: Any) -> Any:
        """The model, compiled with momentum SGD and accuracy by default."""
        settings = {
            "optimizer": self.keras.optimizers.SGD(0.1, momentum=0.9),
            "loss": "sparse_categorical_crossentropy",
            "metrics": ["accuracy"],
        }
        model.compile(**{**settings, **arguments})
        return model

    def ipu_model(self, build: Callable[[], Any] | None = None, **arguments: Any) -> Any:
        """A compiled model of an IPUStrategy."""
        with IPUStrategy().scope():
            return self.compiled((build or self.sequential)(), **arguments)

    def assert_same(
        self, program: Callable[[Any], Any], build: Callable[[], Any] | None = None, **compilation: Any
    ) -> None:
        """Runs `program(model)` on plain Keras and on the IPU; results and weights must agree.

        Plain Keras runs eagerly, unless it must draw the numbers of `jit_compile`: a few steps of a small model take
        less time than tracing one.
        """
        build = build or self.sequential
        self.keras.utils.set_random_seed(3)
        eagerly = {} if compilation.get("jit_compile") else {"run_eagerly": True}
        plain = self.compiled(build(), **_fresh(compilation), **eagerly)
        expected = program(plain)
        self.keras.utils.set_random_seed(3)
        with IPUStrategy().scope():
            model = self.compiled(build(), **_fresh(compilation))
            received = program(model)
        assert_close(received, expected)
        assert_close(model.get_weights(), plain.get_weights())

    def variable(self, weight: Any) -> Any:
        """TensorFlow's variable behind a weight."""
        return weight.value if self.is_keras3 else weight


KITS = {"keras": Kit(keras), "tf_keras": Kit(tf_keras)}
both_frameworks = pytest.mark.sample(2)
"""Parametrisation with both Keras, for features that `keras_ext/frameworks` implements once for each.

Other tests run on one of them.
"""
keras3_only = pytest.mark.parametrize("kit", ["keras"], indirect=True)
tf_keras_only = pytest.mark.parametrize("kit", ["tf_keras"], indirect=True)


def _fresh(compilation: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `compile` with a new optimizer and new metrics: they hold state, so each model gets its own."""
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
