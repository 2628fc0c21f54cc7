"""Training gives the same bits for any number of worker threads."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from ipu.ipu_strategy import IPUStrategy
from tests.keras.models import CLASSES, MODELS, OPTIMIZERS


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", MODELS)
def test_training_gives_the_same_bits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.runtime.executable.inline_work", lambda: 0)
    with IPUStrategy().scope():
        model = MODELS[name](keras)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(OPTIMIZERS["adam"](keras), loss, steps_per_execution=4)
        model.optimizer.build(model.trainable_variables)
    random = np.random.default_rng(0)
    x = random.standard_normal((256, *model.input_shape[1:]), dtype=np.float32)
    y = random.integers(0, CLASSES, 256)
    start = model.get_weights()
    fresh = [v.numpy() for v in model.optimizer.variables]
    trained = []
    for threads in ("1", "2", "3", "9", "32"):
        monkeypatch.setenv("NUMBA_NUM_THREADS", threads)
        model.set_weights(start)
        for variable, value in zip(model.optimizer.variables, fresh, strict=True):
            variable.assign(value)
        model.fit(x, y, batch_size=64, shuffle=False, verbose=0)
        trained.append(model.get_weights())
    for other in trained[1:]:
        for expected, received in zip(trained[0], other, strict=True):
            np.testing.assert_array_equal(received, expected)
