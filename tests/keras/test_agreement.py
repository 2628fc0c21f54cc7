"""Training on the engine ends where Keras on TensorFlow ends, as near as rounding allows.

Keras is compared with itself on batches whose rows are permuted: the same mathematics, other rounding. The engine
may be three times as far from Keras as that, or 1e-5, whichever is more, on all seeds but one.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from ipu.ipu_strategy import IPUStrategy
from tests.exploring import sample
from tests.keras.helpers import KITS, Kit
from tests.keras.models import CLASSES, MODELS, OPTIMIZERS

STEPS, BATCH, SEEDS = 30, 16, 5
FLOOR, FACTOR = 1e-5, 3.0


class Trainer:
    """A compiled model that can start again from given weights, without compiling again."""

    def __init__(
        self, keras: ModuleType, build: Callable[[ModuleType], Any], optimizer: Callable[[ModuleType], Any]
    ) -> None:
        self.model = build(keras)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        self.model.compile(optimizer(keras), loss, metrics=["accuracy"], jit_compile=False, steps_per_execution=10)
        self.model.optimizer.build(self.model.trainable_variables)
        self._fresh = [v.numpy() for v in self._slots()]

    def _slots(self) -> list[Any]:
        """The optimizer's variables; in tf_keras they are a method."""
        variables = self.model.optimizer.variables
        return list(variables() if callable(variables) else variables)

    def train(self, weights: list[np.ndarray], x: np.ndarray, y: np.ndarray) -> dict[str, list[np.ndarray]]:
        """Trains from these weights, and returns the values to compare: weights, predictions, evaluation."""
        self.model.set_weights(weights)
        for variable, value in zip(self._slots(), self._fresh, strict=True):
            variable.assign(value)
        self.model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0)
        trained = self.model.get_weights()
        unseen = x[: 2 * BATCH] * 0.5
        return {
            "weights": trained,
            "predictions": [self.model.predict(unseen, batch_size=BATCH, verbose=0)],
            "evaluation": [np.asarray(self.model.evaluate(unseen, y[: 2 * BATCH], batch_size=BATCH, verbose=0)[:1])],
        }


def farthest(a: list[np.ndarray], b: list[np.ndarray]) -> float:
    return max(float(np.max(np.abs(p - q))) for p, q in zip(a, b, strict=True))


def permuted_rows(array: np.ndarray, order: np.ndarray) -> np.ndarray:
    """The rows of each batch in another order."""
    batches = array.reshape(STEPS, BATCH, *array.shape[1:])
    return np.stack([b[o] for b, o in zip(batches, order, strict=True)]).reshape(array.shape)


QUICK = ("mlp", "adam")
# tf_keras gives much the same HLO: each of its models and optimizers is in one case.
CASES = [
    pytest.param(kit, name, optimizer, marks=[] if (name, optimizer) == QUICK else [pytest.mark.slow])
    for kit in KITS
    for row, name in enumerate(MODELS)
    for column, optimizer in enumerate(OPTIMIZERS)
    if kit == "keras" or (row + column) % 3 == 2
]


@pytest.mark.sample(1)
@pytest.mark.parametrize(("kit", "name", "optimizer"), CASES, indirect=["kit"])
def test_thirty_steps_end_where_keras_ends(kit: Kit, name: str, optimizer: str) -> None:
    keras, build, make_optimizer = kit.keras, MODELS[name], OPTIMIZERS[optimizer]
    reference = Trainer(keras, build, make_optimizer)
    with IPUStrategy().scope():
        ours = Trainer(keras, build, make_optimizer)
    report, good = [], 0
    seeds = sample(range(SEEDS), 3)
    for seed in seeds:
        random = np.random.default_rng(seed)
        keras.utils.set_random_seed(seed)
        weights = build(keras).get_weights()
        x = random.standard_normal((STEPS * BATCH, *reference.model.input_shape[1:]), dtype=np.float32)
        y = random.integers(0, CLASSES, STEPS * BATCH)
        order = np.stack([random.permutation(BATCH) for _ in range(STEPS)])
        expected = reference.train(weights, x, y)
        shuffled = reference.train(weights, permuted_rows(x, order), permuted_rows(y, order))
        received = ours.train(weights, x, y)
        allowed = {k: max(FLOOR, FACTOR * farthest(expected[k], shuffled[k])) for k in expected}
        found = {k: farthest(expected[k], received[k]) for k in expected}
        good += all(found[k] <= allowed[k] for k in expected)
        report.append(", ".join(f"{k} {found[k]:.2e} (allowed {allowed[k]:.2e})" for k in expected))
    assert good >= len(seeds) - 1, "\n".join(report)
