"""Small models of every kind train for ten steps on the engine, and stay near TensorFlow.

Weights, losses and predictions may be three times as far from TensorFlow's as these are from TensorFlow's own on
batches whose rows are permuted, or 1e-4. Models that draw random numbers are compared to 1e-4.
"""

from __future__ import annotations

import keras
import numpy as np
import pytest

from ipu.ipu_strategy import IPUStrategy
from tests.differential.comparison import Results, distance, flat
from tests.models.small_models import EXAMPLES, Example

STEPS, BATCH, FLOOR, FACTOR = 10, 8, 1e-4, 3.0


class Trainee:
    """A compiled model that can start again from the same state, without compiling again."""

    def __init__(self, example: Example) -> None:
        keras.utils.set_random_seed(3)
        self.example, self.model = example, example.build()
        self.model.optimizer.build(self.model.trainable_variables)
        self.variables = [*self.model.variables, *self.model.optimizer.variables]
        self.fresh = [variable.numpy() for variable in self.variables]
        self.start = self.weights()

    def weights(self) -> Results:
        return [np.asarray(each) for each in self.model.get_weights()]

    def train(self, order: np.ndarray) -> tuple[Results, Results]:
        """Trains, and returns the weights and the other values to compare: losses, predictions."""
        for variable, value in zip(self.variables, self.fresh, strict=True):
            variable.assign(value)
        x, y = self.example.data(np.random.default_rng(1), STEPS * BATCH)
        shuffled = [each[order] for each in x] if isinstance(x, list) else x[order]
        labels = None if y is None else y[order]
        history = self.model.fit(shuffled, labels, batch_size=BATCH, shuffle=False, verbose=0).history
        results = flat(sorted(history.items()))[1::2]
        if not self.example.random:
            results += flat(self.model.predict(x, batch_size=BATCH, verbose=0))
        return self.weights(), results


IN_ORDER = np.arange(STEPS * BATCH)


def permuted_batches() -> np.ndarray:
    generator = np.random.default_rng(11)
    return np.concatenate([step * BATCH + generator.permutation(BATCH) for step in range(STEPS)])


@pytest.mark.parametrize(
    "name",
    [name if name == "variational autoencoder" else pytest.param(name, marks=pytest.mark.explore) for name in EXAMPLES],
)
def test_ten_steps_end_where_tensorflow_ends(name: str) -> None:
    example = EXAMPLES[name]
    reference = Trainee(example)
    expected, expected_results = reference.train(IN_ORDER)
    allowed = allowed_results = FLOOR
    if not example.random:
        shuffled, shuffled_results = reference.train(permuted_batches())
        allowed = max(FLOOR, FACTOR * distance(expected, shuffled))
        allowed_results = max(FLOOR, FACTOR * distance(expected_results, shuffled_results))
    with IPUStrategy().scope():
        received, received_results = Trainee(example).train(IN_ORDER)
    assert distance(reference.start, expected) > 50 * FLOOR
    assert distance(expected, received) <= allowed
    assert distance(expected_results, received_results) <= allowed_results
