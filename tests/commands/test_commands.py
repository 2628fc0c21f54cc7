"""`python -m ipu`: its output, the folders that `cache --clear` removes, and the figures and refusals of `bench`."""

from __future__ import annotations

import platform
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.cache_directory import cache_directory, store
from engine.codelets.host import rows
from engine.codelets.language.build import Codelet
from engine.errors import ConfigurationError
from engine.runtime.general_codelets import general_codelets
from ipu._internal.commands import bench
from ipu._internal.commands.command import main

MODEL = """
import keras
import tensorflow as tf

class Refused(keras.layers.Layer):
    def call(self, inputs):
        return inputs * abs(tf.linalg.qr(tf.cast(inputs[:8, :2], tf.complex64))[0][0, 0])

def make(*more):
    model = keras.Sequential([keras.layers.Input((5,)), *more, keras.layers.Dense(3)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
    return model

def refused():
    return make(Refused())
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    return path


def test_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    printed = capsys.readouterr().out
    lines = dict(line.split(maxsplit=1) for line in printed.splitlines())
    assert {"software-ipu", "Python", "processor", "instructions", "cores", "cache", "codelets"} <= lines.keys()
    assert lines["Python"].startswith(platform.python_version())
    assert f"numpy {np.__version__}" in lines["Python"]
    assert re.search(r"\b(4|8|16) float32 lanes", lines["instructions"])


def test_cache_is_cleared_of_compiled_code_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert main(["cache"]) == 0
    assert "codelets    0 files, 0.0 MiB, of 0 releases" in capsys.readouterr().out
    code = cache_directory("codelets-0123456789abcdef") / "a.o"
    store(code, bytes(2**20))
    other = cache_directory("report") / "page.js"
    other.parent.mkdir()
    other.write_text("kept")
    assert main(["cache"]) == 0
    assert "codelets    1 files, 1.0 MiB, of 1 releases" in capsys.readouterr().out
    assert code.exists()
    assert main(["cache", "--clear"]) == 0
    assert not code.parent.exists() and other.exists()


def test_codelets_are_compiled_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {each.name for each in general_codelets()}
    assert {"contract_f32", "executor", "run_member", "infeed", "pool_gradient_UGE", "overlap_add_f32"} <= names
    assert {"gather_rows", "scatter_rows_add"} <= names
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    fresh = [Codelet(rows.infeed.function, "infeed"), Codelet(rows.outfeed.function, "outfeed")]
    monkeypatch.setattr("engine.runtime.general_codelets.general_codelets", lambda: fresh)
    monkeypatch.setattr("engine.installation.usual_steps", lambda: [])
    for compiled in (2, 0):
        assert main(["cache", "--warm"]) == 0
        printed = capsys.readouterr().out
        assert f"compiled      {compiled} codelets" in printed and "codelets    2 files" in printed
        assert all(each.is_made and each.path.exists() for each in fresh)
        fresh = [Codelet(each.function, each.name) for each in fresh]


def test_bench_compares_a_model_of_ones_own(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", f"{model}:make", "--samples", "64", "--batch-size", "8", "--rounds", "2"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("64 samples, batch 8, 2 interleaved epochs of each\n")
    assert re.findall(r"^(engine|Keras(?:, 32 steps)?) ", printed, re.M) == ["engine", "Keras", "Keras, 32 steps"]
    for median, low, high in re.findall(r"([\d.]+)x \(([\d.]+) to ([\d.]+)\)", printed):
        assert 0 < float(low) <= float(median) <= float(high)


def test_bench_says_what_it_cannot_do(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in {
        "refused": "The engine refuses this model: .*'Qr'",
        "absent": "Expected a function of .*: Refused, make, refused. Received: 'absent'",
        "Refused": "Expected a model that is compiled",
    }.items():
        assert main(["bench", f"{model}:{name}", "--samples", "16"]) == 1
        assert re.search(text, capsys.readouterr().err)
    for name, lacking in (("absent.py:make", "such a file"), (str(model), "a function")):
        assert main(["bench", name]) == 1
        assert re.search(f"Expected FILE:FUNCTION.*without {lacking}", capsys.readouterr().err)


def test_random_data_have_the_shapes_of_the_model() -> None:
    import keras

    def model(loss: Any, size: int | None = 4) -> Any:
        inputs = [keras.Input((size, 2)), keras.Input((), dtype="int32")]
        factor = keras.ops.cast(inputs[1], "float32")[:, None, None]
        made = keras.Model(inputs, keras.layers.Dense(3)(inputs[0]) * factor)
        made.compile("sgd", loss)
        return made

    x, y = bench.random_data(model("mse"), 6)
    assert [each.shape for each in x] == [(6, 4, 2), (6,)] and x[1].dtype == np.int32
    assert y.shape == (6, 4, 3)
    assert bench.random_data(model("sparse_categorical_crossentropy"), 6)[1].shape == (6, 4)
    with pytest.raises(ConfigurationError, match="known shapes"):
        bench.random_data(model("mse", None), 6)
