"""The programs of Graphcore's chapter "Training a model", sections 6.1 to 6.3, as they stand there.

Only the data are local: random images in MNIST's place whose mean brightness says the label. The program of 6.2 lacks a
model, a data set and a step; it gets those of 6.3.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.keras.helpers import Kit

SAMPLES = 3200
PROGRAMS = Path(__file__).parent / "chapter_programs"


def images() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Training and test data."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 10, SAMPLES).astype(np.uint8)
    pictures = generator.integers(0, 26, (SAMPLES, 28, 28)) + 25 * labels[:, None, None].astype(np.int64)
    return (pictures.astype(np.uint8), labels), (pictures[:0].astype(np.uint8), labels[:0])


def run(name: str, kit: Kit, monkeypatch: pytest.MonkeyPatch, on_print: Callable[..., None]) -> dict[str, Any]:
    """The names that a program has defined when it ends; `on_print` gets them and the printed values."""
    from tensorflow.python.keras.datasets import mnist

    monkeypatch.setattr(importlib.import_module(mnist.__name__), "load_data", images)
    path = PROGRAMS / f"{name}.txt"
    source = path.read_text()
    if not kit.is_keras3:
        source = source.replace("import tensorflow as tf\n", "import tensorflow as tf, tf_keras\n")
        source = source.replace("tf.keras.", "tf_keras.")
    names: dict[str, Any] = {"__name__": "__main__"}
    names["print"] = lambda *values: on_print(names, *values)
    exec(compile(source, path, "exec"), names)
    return names


def test_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.keras.helpers import KITS

    printed: dict[str, Any] = {}
    names = run("queues", KITS["keras"], monkeypatch, lambda _, what, value: printed.update({what: value}))
    assert int(printed["counter"]) == 10
    result = printed["outfeed result"]
    assert list(result) == ["d1", "d2"]
    np.testing.assert_array_equal(result["d1"], np.full((10, 800), 2.0, np.float32))
    np.testing.assert_array_equal(result["d2"], np.zeros((10, 800), np.float32))
    assert names["infeed_queue"].dequeued


def test_iterators(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[str] = []
    run("iterators", kit, monkeypatch, lambda _, text: printed.append(text))
    losses = [float(text.removeprefix("Loss: ")) for text in printed]
    assert len(losses) == 100
    assert np.isfinite(losses).all() and np.mean(losses[-10:]) < np.mean(losses[:10])


def test_streaming(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []
    losses: list[float] = []
    while_running: list[bool] = []

    def note(names: dict[str, Any], step: str, number: int, equals: str, loss: Any) -> None:
        assert (step, equals) == ("Step", "loss = ")
        steps.append(number)
        losses.append(float(loss))
        while_running.append(names["outfeed_queue"]._endpoint._running > 0)

    run("streaming", kit, monkeypatch, note)
    assert steps == list(range(100))
    assert np.isfinite(losses).all()
    assert any(while_running)
