"""The two programs of Graphcore's chapter "Keras with IPUs", section 19.9, as they stand there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from engine.serving.manifest import read_manifest
from tests.keras.helpers import Kit

PROGRAMS = Path(__file__).parent / "chapter_programs"


def run(name: str, kit: Kit) -> list[Any]:
    """Values that a program prints."""
    source = (PROGRAMS / f"{name}.txt").read_text()
    if not kit.is_keras3:
        source = source.replace("import keras\n", "import tf_keras as keras\n")
    printed: list[Any] = []
    names = {"__name__": "__main__", "print": lambda *values: printed.append(values[-1])}
    exec(compile(source, name, "exec"), names)
    return printed


@pytest.mark.parametrize(("name", "version", "first"), [("one_ipu", "003", 2), ("pipeline", "004", 2)])
def test_program(
    name: str, version: str, first: int, kit: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _, *results = run(name, kit)
    step = 1 if name == "one_ipu" else 2
    assert len(results) == 16
    for number, [result] in enumerate(results):
        np.testing.assert_array_equal(result, np.full((1, 4), first + step * number, np.float32))
    directory = tmp_path / "my_saved_model_ipu" / version
    manifest = read_manifest(directory)
    assert [tensor.name for tensor in manifest.inputs] == ["input_1", "input_2"]
    assert (manifest.iterations, manifest.batch_size) == (16, 1)
    assert (manifest.pipeline is not None) == (name == "pipeline")
    assert manifest.pipeline is None or manifest.pipeline.device_mapping == (0, 1)
    loaded = tf.saved_model.load(str(directory)).signatures["serving_default"]
    ones = tf.ones((1, 4))
    np.testing.assert_array_equal(loaded(input_1=ones, input_2=2 * ones)["output_0"], results[1][0])
