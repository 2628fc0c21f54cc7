"""Long runs keep their memory: many shapes, and many models that are built and dropped. Bounds are printed.

`python -m tests --all` makes 10,000 calls and 200 models, by default a few; tests/keras/test_soak.py has executions.
"""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

from engine.runtime.executable import Executable
from ipu._internal import recent_programs
from tests.exploring import seed
from tests.keras.helpers import Kit, data
from tests.keras.test_soak import alive, allocated, assert_nothing_grew, census

X, Y = data(64)
CALLS, MODELS = (60, 3) if seed() is None else (10_000, 200)
BYTES_OF_A_TRACE = 500_000
"""TensorFlow keeps 30 to 60 kB of each function that XLA has translated, and more of a Keras model."""


def expected(model: Any, x: np.ndarray) -> np.ndarray:
    """The predictions of two dense layers, by NumPy."""
    (hidden, bias), (head, last) = (layer.get_weights() for layer in model.layers[-2:])
    scores = np.maximum(x @ hidden + bias, 0) @ head + last
    exponentials = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(-1, keepdims=True))


def build(kit: Kit) -> Any:
    layers = kit.keras.layers
    return kit.keras.Sequential([layers.Input((X.shape[1],)), layers.Dense(8, "relu"), layers.Dense(3, "softmax")])


@pytest.mark.explore
def test_changing_shapes(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs of the shapes used last are kept, and numbers are right also where one is compiled again."""
    most = 6
    monkeypatch.setattr(recent_programs, "MOST_PROGRAMS", most)
    model = kit.ipu_model(lambda: build(kit))
    before, compiled = alive(Executable), []

    def predict(rows: int) -> None:
        np.testing.assert_allclose(model.predict_on_batch(X[:rows]), expected(model, X[:rows]), rtol=1e-5, atol=1e-6)
        program = model.predict_function.latest_program()
        if not compiled or compiled[-1] != id(program):
            compiled.append(id(program))

    for rows in range(1, 16):
        predict(rows)
    assert len(compiled) == 15 and alive(Executable) - before <= most
    for rows in (*range(10, 16), 10):  # those used last are there
        predict(rows)
    assert len(compiled) == 15
    predict(1)
    predict(10)  # 11 was used longest ago
    assert len(compiled) == 16
    predict(11)
    assert len(compiled) == 17
    start, calls = allocated(), CALLS
    for call in range(calls):
        predict(1 + call % most if call % 50 else 20 + call // 50 % 40)
    blocks, size = (new - old for new, old in zip(allocated(), start, strict=True))
    made = len(compiled) - 17
    print(f"{calls} calls, {made} compilations: {blocks / calls:.1f} blocks and {size / calls:.0f} bytes a call")
    assert alive(Executable) - before <= most
    assert size <= made * BYTES_OF_A_TRACE + calls * 200 and blocks <= made * 400 + calls


@pytest.mark.explore
def test_models_that_are_built_and_dropped(kit: Kit) -> None:
    def use() -> weakref.ref[Any]:
        model = kit.ipu_model(lambda: build(kit))
        model.fit(X[:8], Y[:8], batch_size=8, verbose=0)
        model.predict_on_batch(X[:4])
        return weakref.ref(model)

    first = [use() for _ in range(2)]
    before, start = census(), allocated()
    dropped = [use() for _ in range(MODELS)]
    gc.collect()
    assert_nothing_grew(before, census())
    assert not any(model() for model in (*first, *dropped))
    blocks, size = ((new - old) / MODELS for new, old in zip(allocated(), start, strict=True))
    print(f"{MODELS} models: {blocks:.0f} blocks and {size:.0f} bytes a model")
    assert size < 8 * BYTES_OF_A_TRACE
