"""Notices and errors of the console: what is said once, what is not said, and proposals that suffice as printed."""

from __future__ import annotations

import logging
from typing import Any

import keras
import numpy as np
import pytest

import ipu
from engine.errors import AccumulationStepError, OutOfTileMemory
from ipu.config import IPUConfig
from ipu.ipu_strategy import IPUStrategy
from tests.keras.helpers import Kit, data, tf_keras_only


def configure(ipus: int = 1, tiles: int = 0) -> None:
    config = IPUConfig()
    config.auto_select_ipus, config.ipu_model.tiles_per_ipu = ipus, tiles
    config.configure_ipu_system()


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    records = [each for each in caplog.records if each.name.startswith("ipu") and each.levelno >= logging.WARNING]
    return [each.getMessage() for each in records if "existing IPU configuration" not in each.getMessage()]


def pipeline(stages: int, steps: int) -> Any:
    with IPUStrategy().scope():
        x = inputs = keras.Input((8,))
        for stage in range(stages):
            with keras.ipu.PipelineStage(stage):
                x = keras.layers.Dense(4)(x)
        model = keras.Model(inputs, x)
        model.compile("sgd", "mse", steps_per_execution=steps)
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=steps)
    return model


def test_three_layers_and_labels_of_int64_have_no_notice(caplog: pytest.LogCaptureFixture) -> None:
    configure()
    x = np.random.default_rng(0).random((64, 8), np.float32)
    with IPUStrategy().scope():
        model = keras.Sequential([keras.layers.Dense(6, "relu"), keras.layers.Dense(5, "relu"), keras.layers.Dense(3)])
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), steps_per_execution=4)
    model.fit(x, x[:, :3].argmax(1), batch_size=16, verbose=0)
    assert warnings_of(caplog) == []


@pytest.mark.parametrize("given", ["two", None, [1.5]])
def test_types_are_told_as_python_writes_them(given: object) -> None:
    with pytest.raises(TypeError, match=r"must be of type int \| list\[int\] \| tuple\[int, \.\.\.\]\. Received"):
        IPUConfig().auto_select_ipus = given  # type: ignore[assignment]


def test_a_partial_batch_of_a_pipeline_is_named() -> None:
    configure(2)
    model, x = pipeline(2, 8), np.ones((100, 8), np.float32)
    for run in (lambda: model.evaluate(x, x[:, :4], batch_size=8, verbose=0), lambda: model.predict(x, 8, verbose=0)):
        with pytest.raises(AccumulationStepError, match=r"a partial batch of 4 samples after batches of 8.*of 16;"):
            run()
    assert model.predict(x[:96], batch_size=8, verbose=0).shape == (96, 4)


def test_ipus_without_work_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    configure(3)
    configure(4)
    model, x = pipeline(3, 6), np.ones((48, 8), np.float32)
    for _ in range(2):
        model.fit(x, x[:, :4], batch_size=8, verbose=0)
        model.evaluate(x, x[:, :4], batch_size=8, verbose=0)
    of_configuration, of_model = warnings_of(caplog)
    assert "auto_select_ipus = 3" in of_configuration and "Nearest: 2 or 4" in of_configuration
    assert "on 3 IPUs, and a replica takes 4" in of_model


def test_predictions_of_a_pipeline_are_profiled() -> None:
    configure(2)
    model = pipeline(2, 8)
    cycles = {mode: ipu.profile(model, mode=mode, path=None).cycles["total"] for mode in ("predict", "test", "train")}
    assert 0 < cycles["predict"] < cycles["train"]


def deep() -> Any:
    with IPUStrategy().scope():
        layers = [keras.layers.Dense(256, "relu") for _ in range(4)]
        model = keras.Sequential([keras.layers.Input((256,)), *layers, keras.layers.Dense(3, "softmax")])
        model.compile("adam", "sparse_categorical_crossentropy")
    return model


@pytest.mark.parametrize(
    ("tiles", "batch"),
    [(16, 1024), *(pytest.param(tiles, 1024, marks=pytest.mark.explore) for tiles in (19, 20, 21, 22))]
    + [pytest.param(12, 512, marks=pytest.mark.explore), pytest.param(6, 2048, marks=pytest.mark.explore)],
)
def test_lines_of_proposals_suffice(tiles: int, batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_ipu_model")
    generator = np.random.default_rng(0)
    rows = 16 * batch  # an update of a proposed pipeline takes 16 micro-batches
    x, y = generator.normal(size=(rows, 256)).astype(np.float32), generator.integers(0, 3, rows)
    configure(1, tiles)
    with pytest.raises(OutOfTileMemory) as raised:
        deep().fit(x, y, batch_size=batch, verbose=0)
    enough = [lever for lever in raised.value.levers if lever.fits]
    assert enough and all(line in str(raised.value) for lever in enough for line in lever.how)
    try:
        for lever in enough:
            configure(1, tiles)
            keras.mixed_precision.set_global_policy("float32")
            before = [line for line in lever.how if not line.startswith("model")]
            # "or your program's own": the lines keep the small chip.
            chip = f"; config.ipu_model.tiles_per_ipu = {tiles}"
            before = [line.replace("IPUConfig()", f"IPUConfig(){chip}") for line in before]
            names = {"keras": keras, "ipu": ipu, "x": x, "y": y}
            exec("\n".join(before), names)
            names["model"] = model = deep()
            exec("\n".join(lever.how[len(before) :]), names)  # raises OutOfTileMemory if it does not suffice
            if "fit(" not in lever.how[-1]:
                model.fit(x, y, batch_size=batch, verbose=0)
    finally:
        keras.mixed_precision.set_global_policy("float32")


@tf_keras_only  # its layers raise an error for the weights of a model that is not built
def test_layers_that_build_models_in_their_calls_are_trained(kit: Kit) -> None:
    class Message(kit.keras.layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.dense = kit.keras.Sequential([kit.keras.layers.Dense(6, "gelu")])

        def call(self, inputs: Any) -> Any:
            return self.dense(inputs)

    class Nested(kit.Subclassed):
        def __init__(self) -> None:
            super().__init__()
            self.message = Message()

        def call(self, inputs: Any, training: bool = False) -> Any:
            return super().call(self.message(inputs))

    x, y = data()
    kit.assert_same(lambda model: model.fit(x, y, batch_size=8, shuffle=False, verbose=0).history, Nested)
