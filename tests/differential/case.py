"""Cases to compare: one model, its data, and how its reference is to run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

CLASSES = 3
BATCH = 8
STEPS = 4

Sampler = Callable[[np.random.Generator, int], np.ndarray]
Make = Callable[..., Any]


@dataclass(frozen=True)
class Feature:
    """An input of a model: `sample(generator, rows)` gives an array [rows, *shape]."""

    shape: tuple[int, ...]
    sample: Sampler
    dtype: str = "float32"
    smooth: bool = True
    """Whether a trainable layer may come before the layer in question, so that gradients pass through it."""


@dataclass(frozen=True)
class Case:
    """A case: `build(keras)` makes the model, other functions what it is compiled with, and `labels` its targets."""

    kind: str
    name: str
    variant: str
    features: tuple[Feature, ...]
    labels: Sampler
    build: Callable[[ModuleType], Any]
    loss: Callable[[ModuleType], Any]
    optimizer: Callable[[ModuleType], Any]
    metrics: Callable[[ModuleType], list[Any]] = lambda keras: []
    random: bool = False
    """Whether training draws random numbers: the reference then runs with `jit_compile=True`, which draws the same."""
    counts_traces: bool = False
    """Whether numbers depend on how often TensorFlow has traced a step: the reference then traces one step, once."""
    framework: str = ""
    """The only framework with this variant; "" if every framework with the name has it."""

    @property
    def title(self) -> str:
        return f"{self.kind}/{self.name}" + (f" ({self.variant})" if self.variant else "")


def normal(*shape: int) -> Feature:
    return Feature(shape, lambda g, rows: g.standard_normal((rows, *shape), dtype=np.float32))


def pixels(*shape: int) -> Feature:
    """Colours from 0 to 255, as float32."""
    return Feature(shape, lambda g, rows: g.integers(0, 256, (rows, *shape)).astype(np.float32), smooth=False)


def tokens(*shape: int, below: int = 10) -> Feature:
    return Feature(
        shape, lambda g, rows: g.integers(0, below, (rows, *shape), dtype=np.int32), dtype="int32", smooth=False
    )


def classes(generator: np.random.Generator, rows: int) -> np.ndarray:
    return generator.integers(0, CLASSES, rows)


def one_hot(generator: np.random.Generator, rows: int) -> np.ndarray:
    return np.eye(CLASSES, dtype=np.float32)[classes(generator, rows)]


def bits(generator: np.random.Generator, rows: int) -> np.ndarray:
    return generator.integers(0, 2, (rows, CLASSES)).astype(np.float32)


def bit(generator: np.random.Generator, rows: int) -> np.ndarray:
    return generator.integers(0, 2, (rows, 1)).astype(np.float32)


def signs(generator: np.random.Generator, rows: int) -> np.ndarray:
    return bits(generator, rows) * 2 - 1


def probabilities(generator: np.random.Generator, rows: int) -> np.ndarray:
    return generator.dirichlet(np.ones(CLASSES), rows).astype(np.float32)


def reals(generator: np.random.Generator, rows: int) -> np.ndarray:
    return generator.uniform(0.1, 1, (rows, CLASSES)).astype(np.float32)


def inputs_of(keras: ModuleType, features: tuple[Feature, ...]) -> list[Any]:
    return [keras.Input(feature.shape, dtype=feature.dtype) for feature in features]


def logits_loss(keras: ModuleType) -> Any:
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def descent(keras: ModuleType) -> Any:
    return keras.optimizers.SGD(0.01, momentum=0.9)
