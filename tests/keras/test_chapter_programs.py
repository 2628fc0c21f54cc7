"""The programs of Graphcore's chapter "Keras with IPUs", sections 19.1 to 19.3 and 19.7, as they stand there.

Only the data are local: random images in MNIST's place whose mean brightness says the label.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from keras_ext import queue_options
from tests.keras.helpers import Kit

SAMPLES = 3200
BATCHES = SAMPLES // 32
PROGRAMS = Path(__file__).parent / "chapter_programs"


def images() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 10, SAMPLES).astype(np.uint8)
    pictures = generator.integers(0, 26, (SAMPLES, 28, 28)) + 25 * labels[:, None, None].astype(np.int64)
    return (pictures.astype(np.uint8), labels), (pictures[:0].astype(np.uint8), labels[:0])


def run(name: str, kit: Kit, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names that a program has defined when it ends."""
    package = kit.keras.__name__
    monkeypatch.setattr(importlib.import_module(f"{package}.datasets.mnist"), "load_data", images)
    path = PROGRAMS / f"{name}.txt"
    source = path.read_text()
    if not kit.is_keras3:
        source = source.replace("import keras\n", f"import {package} as keras\n")
        source = source.replace("from keras.", f"from {package}.")
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(source, path, "exec"), names)
    return names


@pytest.mark.filterwarnings("ignore:`shuffle=True` was passed")  # Keras 3, wherever the programs run
@pytest.mark.parametrize(
    ("name", "updates"),
    [
        ("single_ipu", 2 * 100),
        ("steps_per_execution", 2 * BATCHES),
        ("gradient_accumulation", 2 * BATCHES // 10),
    ],
)
def test_program_trains(name: str, updates: int, kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    model = run(name, kit, monkeypatch)["model"]
    history = model.history.history
    assert len(history["loss"]) == 2
    assert np.isfinite(history["loss"]).all()
    assert 0 <= history["accuracy"][-1] <= 1
    assert int(kit.variable(model.optimizer.iterations).numpy()) == updates
    assert all(np.isfinite(weight).all() and weight.any() for weight in model.get_weights())


def test_program_of_the_queues(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    model = run("queues", kit, monkeypatch)["model"]
    assert queue_options.prefetch_depth(model) == 2
    assert queue_options.buffer_depth(model) == 2
