"""Models of applications with random weights: a prediction and a training step match TensorFlow's.

TensorFlow is compared with itself on batches whose rows are permuted: the same mathematics, other rounding. A result
may be three times as far from TensorFlow's as that, or 1e-5 of its largest number, whichever is more. This holds for
the prediction, the loss and nineteen in twenty of the weights. An input of a ReLU that rounds to the other side of zero
moves a whole kernel, so the others are held to what the most shaken weight of the model may differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from engine.compile import build_program
from engine.program.memory import plan_memory
from engine.program.program import Buffer, Program
from ipu._internal.compiler.trace import trace_step
from ipu.ipu_strategy import IPUStrategy
from keras_ext.frameworks.keras3 import Keras3
from tests.differential.frameworks import Framework, framework

pytestmark = pytest.mark.slow

NAMES = ("ResNet50", "MobileNetV2", "EfficientNetB0", "DenseNet121", "ConvNeXtTiny")
CASES = [
    (used, name) for used, names in (("keras", NAMES), ("tf_keras", ("ResNet50", "EfficientNetB0"))) for name in names
]
"""Models of Keras 3, and two very different ones of tf_keras, whose applications have the same layers."""
SIZE, BATCH, CLASSES = 64, 8, 10
FLOOR, FACTOR, ORDERS, WITHIN, MOVED = 1e-5, 3.0, 3, 0.95, 10.0


@dataclass(frozen=True)
class Run:
    """Results of one model: a prediction before training; the loss and the weights of one step."""

    prediction: np.ndarray
    loss: np.ndarray
    weights: list[np.ndarray]


class Subject:
    """A compiled model that can start again from the same weights, without compiling again."""

    def __init__(self, used: Framework, name: str, *, drawing: bool, **compilation: bool) -> None:
        keras = used.keras
        keras.utils.set_random_seed(3)
        build = getattr(keras.applications, name, None) or getattr(keras.applications.convnext, name)
        self.model = build(weights=None, classes=CLASSES, input_shape=(SIZE, SIZE, 3))
        if not drawing:
            for layer in self.model._flatten_layers():
                if isinstance(layer, keras.layers.Dropout):
                    layer.rate = 0.0
        optimizer = keras.optimizers.SGD(0.01, momentum=0.9)
        self.model.compile(optimizer, "sparse_categorical_crossentropy", **{"jit_compile": False, **compilation})
        self.variables = used.state(self.model)
        self.fresh = [np.asarray(variable.numpy()) for variable in self.variables]
        # Scales of 1 and 1e-6 and biases of 0 would hide what is done with them.
        generator = np.random.default_rng(2)
        for k in range(len(self.model.weights)):
            if self.fresh[k].ndim == 1 and self.fresh[k].dtype == np.float32:
                self.fresh[k] = self.fresh[k] + generator.uniform(0, 0.1, self.fresh[k].shape).astype(np.float32)

    def weights(self) -> list[np.ndarray]:
        return [np.asarray(each) for each in self.model.get_weights()]

    def start(self) -> list[np.ndarray]:
        """Restores all variables, and returns the weights."""
        for variable, value in zip(self.variables, self.fresh, strict=True):
            variable.assign(value)
        return self.weights()

    def run(self, order: np.ndarray | None = None) -> Run:
        """Predicts, then trains for a step, on rows in this order."""
        self.start()
        generator = np.random.default_rng(1)
        images = generator.standard_normal((BATCH, SIZE, SIZE, 3), dtype=np.float32)
        labels = generator.integers(0, CLASSES, BATCH)
        rows = np.arange(BATCH) if order is None else order
        prediction = self.model.predict(images[rows], batch_size=BATCH, verbose=0)[np.argsort(rows)]
        history: Any = self.model.fit(images[rows], labels[rows], batch_size=BATCH, shuffle=False, verbose=0)
        return Run(prediction, np.asarray(history.history["loss"]), self.weights())


def difference(a: np.ndarray, b: np.ndarray) -> float:
    """The largest difference; infinite where one is NaN."""
    return float(np.nan_to_num(np.abs(a.astype(np.float64) - b), nan=np.inf).max(initial=0.0))


def allowed(expected: np.ndarray, shuffled: list[np.ndarray]) -> float:
    return max([FLOOR * float(np.abs(expected).max()), *(FACTOR * difference(expected, each) for each in shuffled)])


def check(expected: Run, shuffled: list[Run], received: Run) -> list[float]:
    """Compares the results; returns the tolerance for the weights."""
    for part in ("prediction", "loss"):
        one = getattr(expected, part)
        assert difference(one, getattr(received, part)) <= allowed(one, [getattr(each, part) for each in shuffled]), (
            part
        )
    limits = [allowed(one, [each.weights[k] for each in shuffled]) for k, one in enumerate(expected.weights)]
    found = [difference(a, b) for a, b in zip(expected.weights, received.weights, strict=True)]
    assert np.mean([f <= limit for f, limit in zip(found, limits, strict=True)]) >= WITHIN
    assert max(found) <= max(limits)
    return limits


def check_moved(start: list[np.ndarray], expected: Run, limits: list[float]) -> None:
    """Asserts that most weights move ten times as far as they may differ, else the comparison shows nothing."""
    moved = [difference(a, b) for a, b in zip(start, expected.weights, strict=True)]
    assert np.median([m / max(limit, 1e-30) for m, limit in zip(moved, limits, strict=True)]) > MOVED


@pytest.mark.explore
@pytest.mark.parametrize(("framework_name", "name"), CASES)
def test_a_prediction_and_a_step(framework_name: str, name: str) -> None:
    """Dropout is off, as it would draw other numbers for permuted rows."""
    used = framework(framework_name)
    reference = Subject(used, name, drawing=False, run_eagerly=True)
    start, expected = reference.start(), reference.run()
    generator = np.random.default_rng(11)
    shuffled = [reference.run(generator.permutation(BATCH)) for _ in range(ORDERS)]
    with IPUStrategy().scope():
        subject = Subject(used, name, drawing=False)
    check_moved(start, expected, check(expected, shuffled, subject.run()))


@pytest.mark.explore
def test_a_step_with_dropout() -> None:
    """The engine draws the random numbers of plain Keras."""
    used = framework("keras")
    reference = Subject(used, "EfficientNetB0", drawing=True)
    start, expected = reference.start(), reference.run()
    with IPUStrategy().scope():
        subject = Subject(used, "EfficientNetB0", drawing=True)
    check_moved(start, expected, check(expected, [], subject.run()))


@pytest.mark.explore
def test_memory_is_little_more_than_what_backpropagation_needs() -> None:
    """Outputs of all convolutions and activations must live until their gradients; the plan may take twice those bytes.

    Next to them lie borders, partial sums and gradients on their way to an update.
    """
    with IPUStrategy().scope():
        model = Subject(framework("keras"), "ResNet50", drawing=False).model
        traced = trace_step(
            lambda *batch: Keras3().step(model, "train", batch),
            [tf.TensorSpec([BATCH, SIZE, SIZE, 3]), tf.TensorSpec([BATCH], tf.int64)],
        )
    kept = [each for each in model.layers if isinstance(each, (keras.layers.Conv2D, keras.layers.Activation))]
    needed = sum(BATCH * int(np.prod(each.output.shape[1:])) * 4 for each in kept)
    program = build_program(traced.module, traced.roles, traced.constants)
    plan = plan_memory(program)
    touched = [{s.buffer for s in (*each.reads, *each.writes)} for each in program.compute_sets]
    least = max(sum(b.shape.bytes for b in each if b.kind == "arena") for each in touched)
    assert max(least, needed) <= max(plan.live_bytes) <= plan.arena_bytes <= 2 * needed, (plan.arena_bytes, needed)
    assert plan.arena_bytes <= 1.3 * _live_bytes(program)


def _live_bytes(program: Program) -> int:
    """The greatest number of bytes of results between first and last use, from the compute sets alone."""
    uses: dict[Buffer, list[int]] = {}
    for at, each in enumerate(program.compute_sets):
        for span in (*each.reads, *each.writes):
            uses.setdefault(span.buffer, []).append(at)
    alive = np.zeros(len(program.compute_sets) + 1, np.int64)
    for buffer, places in uses.items():
        if buffer.kind in ("arena", "feed"):
            alive[places[0]] += buffer.shape.bytes
            alive[places[-1] + 1] -= buffer.shape.bytes
    return int(np.cumsum(alive).max())
