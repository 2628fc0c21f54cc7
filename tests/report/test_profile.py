"""`ipu.profile` and `ipu.ProfileReport` on models of both Keras, on functions, and on programs that do not fit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

import engine.report
from engine.errors import ConfigurationError, OutOfTileMemory
from engine.profile.program_estimate import estimate
from engine.profile.refusal import out_of_tile_memory
from engine.report import Report
from engine.report.comparison import compare
from engine.target import target
from ipu._internal.compiler.program import TracedProgram
from ipu.ipu_strategy import IPUStrategy
from keras_ext.chip import chip_scaling
from tests.interrupting import HANGS_SECONDS
from tests.keras.helpers import FEATURES, KITS, Kit, data
from tests.keras.pipelines import loss_of, set_stages
from tests.profile.programs import dense_step
from tests.report.test_sources import sums

FORMS = (".html", ".json", ".trace.json", ".txt")


@pytest.fixture(params=KITS)
def kit(request: pytest.FixtureRequest) -> Kit:
    return KITS[request.param]


def test_the_names_stand_where_they_are_documented() -> None:
    from tensorflow.python.ipu import ProfileReport, profile

    assert profile is ipu.profile and ProfileReport is ipu.ProfileReport
    assert {"profile", "ProfileReport"} <= set(dir(ipu))


def test_profile_of_a_model(kit: Kit, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = kit.ipu_model()
    x, y = data()
    model.fit(x, y, batch_size=8, verbose=0)
    capsys.readouterr()
    report = ipu.profile(model, path=tmp_path / "report.html")
    told = capsys.readouterr().out
    assert told == f"Report written to {tmp_path / 'report.html'} (and .json, .trace.json, .txt)\n"
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted("report" + form for form in FORMS)
    assert report.data["name"] == model.name and report.data["speed"]["samples_per_step"] == 8
    assert any("dense" in row["name"] for row in report.data["operations"])
    measured = report.data["host"]["measured"]
    assert measured["executions"] > 0
    assert report.data["about"]["versions"]["tensorflow"] == tf.__version__
    assert Report.load(tmp_path / "report.html").data["cycles"] == report.cycles


def test_each_mode_has_its_report(kit: Kit) -> None:
    model = kit.ipu_model()
    x, y = data()
    model.fit(x, y, batch_size=8, verbose=0)
    model.predict(x, batch_size=12, verbose=0)
    trained = ipu.profile(model, path=None)
    predicted = ipu.profile(model, path=None, mode="predict")
    assert trained.data["speed"]["samples_per_step"] == 8 and predicted.data["speed"]["samples_per_step"] == 12
    assert len(predicted.data["operations"]) < len(trained.data["operations"])
    with pytest.raises(ConfigurationError, match="Expected a mode"):
        ipu.profile(model, path=None, mode="fit")


def test_a_model_that_has_not_run(kit: Kit) -> None:
    """The program is compiled for the shapes the model was built for, as by `fit`, and nothing is changed."""
    x, y = data()
    model = kit.ipu_model()
    before = model.get_weights()
    unseen = ipu.profile(model, path=None)
    assert unseen.data["speed"]["samples_per_step"] == 32 and unseen.data["host"]["measured"] is None
    eight = ipu.profile(model, x, y, batch_size=8, path=None)
    assert ipu.profile(model, x=x, y=y, batch_size=8, path=None).cycles == eight.cycles
    with pytest.raises(ConfigurationError, match="the arguments x and y to profile a model. Received: 3"):
        ipu.profile(model, x, y, x, path=None)
    with pytest.raises(ConfigurationError, match="Received: 1 arguments without a name, and z by name"):
        ipu.profile(model, x, z=y, path=None)
    evaluated = ipu.profile(model, x, y, path=None, mode="test", batch_size=8)
    for one, other in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    model.fit(x, y, batch_size=8, verbose=0)
    assert ipu.profile(model, path=None).cycles == eight.cycles
    model.evaluate(x, y, batch_size=8, verbose=0)
    assert ipu.profile(model, path=None, mode="test").cycles["compute"] == evaluated.cycles["compute"]


def test_a_model_of_no_strategy(kit: Kit) -> None:
    with pytest.raises(ConfigurationError, match="created inside an IPUStrategy"):
        ipu.profile(kit.compiled(kit.sequential()), path=None)


def test_the_callback_reports_on_fit(kit: Kit, tmp_path: Path) -> None:
    model = kit.ipu_model()
    x, y = data()
    callback = ipu.ProfileReport(tmp_path / "fit.html", name="my model")
    history = model.fit(x, y, batch_size=8, epochs=2, verbose=0, validation_data=(x, y), callbacks=[callback])
    assert len(history.history["loss"]) == 2
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted("fit" + form for form in FORMS)
    assert callback.report.data["name"] == "my model"
    assert callback.report.data["speed"]["samples_per_step"] == 8
    assert callback.report.data["host"]["measured"]["executions"] == 6
    backward = [row["name"] for row in callback.report.data["operations"] if "(backward)" in row["name"]]
    assert backward


@pytest.mark.sample(1)
@pytest.mark.parametrize("aloud", [True, False])
def test_the_callback_says_once_where_the_report_is(
    kit: Kit, tmp_path: Path, aloud: bool, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """The path is on stdout after the run's progress, or in the log if the run is silent or Keras uses logs."""
    model = kit.ipu_model()
    x, y = data()
    with caplog.at_level("INFO", "ipu"):
        callbacks = [ipu.ProfileReport(tmp_path / "r.html")]
        model.fit(x, y, epochs=2, verbose=2 if aloud else 0, callbacks=callbacks)
        model.predict(x, verbose=1 if aloud else 0, callbacks=callbacks)
    lines = [line for line in capsys.readouterr().out.splitlines() if "Report written" in line]
    logged = [record.getMessage() for record in caplog.records if "Report written" in record.getMessage()]
    assert (len(lines), len(logged)) == ((2, 0) if aloud else (0, 2))
    assert all(str(tmp_path / "r.html") in line for line in lines + logged)
    if not aloud:
        return
    assert all(line.startswith("Report written") for line in lines)
    kit.keras.utils.disable_interactive_logging()
    try:
        ipu.profile(model, path=tmp_path / "s.html")
    finally:
        kit.keras.utils.enable_interactive_logging()
    assert "Report written" not in capsys.readouterr().out


def test_the_callback_reports_early(kit: Kit, tmp_path: Path) -> None:
    class Stopped(Exception):
        pass

    def stop(epoch: int, logs: Any) -> None:
        if epoch == 1:
            raise Stopped

    model = kit.ipu_model()
    x, y = data()
    stopping = kit.keras.callbacks.LambdaCallback(on_epoch_end=stop)
    with pytest.raises(Stopped):
        model.fit(x, y, epochs=3, verbose=0, callbacks=[ipu.ProfileReport(tmp_path / "r.html"), stopping])
    assert Report.load(tmp_path / "r.json").fits


@pytest.mark.parametrize("method", ["evaluate", "predict"])
def test_the_callback_reports_on_the_other_methods(kit: Kit, tmp_path: Path, method: str) -> None:
    model = kit.ipu_model()
    x, y = data()
    callback = ipu.ProfileReport(tmp_path / "r.html")
    arguments = (x, y) if method == "evaluate" else (x,)
    getattr(model, method)(*arguments, batch_size=6, verbose=0, callbacks=[callback])
    assert callback.report.data["speed"]["samples_per_step"] == 6
    assert (tmp_path / "r.html").exists()


def test_the_callback_changes_nothing(kit: Kit) -> None:
    x, y = data()

    def train(callbacks: list[Any]) -> list[np.ndarray]:
        kit.keras.utils.set_random_seed(4)
        model = kit.ipu_model()
        model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0, callbacks=callbacks)
        return model.get_weights()

    class Silent(ipu.ProfileReport):
        def _write(self, mode: str) -> None:
            pass

    for one, other in zip(train([]), train([Silent()]), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_report_on_what_does_not_fit(kit: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = out_of_tile_memory(estimate(dense_step(64, 2000, 2000), target("ipu2", tiles=8)))

    def refuse(self: TracedProgram, traced: Any) -> None:
        raise error

    model = kit.ipu_model()
    x, y = data()
    callback = ipu.ProfileReport(tmp_path / "failed.html")
    with monkeypatch.context() as patch:
        patch.setattr(TracedProgram, "__init__", refuse)
        with pytest.raises(OutOfTileMemory) as raised:
            model.fit(x, y, verbose=0, callbacks=[callback])
    assert raised.value is error and any("failed.html" in note for note in error.__notes__)
    found = Report.load(tmp_path / "failed.json").data
    assert not found["fits"] and found["failure"] == str(error) and found["name"] == model.name
    assert "The program was not run." in (tmp_path / "failed.html").read_text()
    assert found["advice"][0]["section"] == "memory"
    assert len(found["tiles"]) == 8 and found["operations"]
    model.fit(x, y, verbose=0)  # a callback that is no longer there is not called
    assert Report.load(tmp_path / "failed.json").data == found


@pytest.mark.parametrize("report_by", ["callback", "function"])
def test_a_report_on_a_model_for_too_few_tiles(
    kit: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, report_by: str
) -> None:
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_ipu_model")
    config = ipu.config.IPUConfig()
    config.ipu_model.tiles_per_ipu = 2
    config.configure_ipu_system()
    layers = kit.keras.layers
    model = kit.ipu_model(lambda: kit.keras.Sequential([layers.Input((600,)), layers.Dense(600), layers.Dense(3)]))
    x, y = np.ones((16, 600), np.float32), np.zeros(16, np.int32)
    page = tmp_path / "failed.html"
    with pytest.raises(OutOfTileMemory) as raised:
        if report_by == "callback":
            model.fit(x, y, batch_size=16, verbose=0, callbacks=[ipu.ProfileReport(page)])
        else:
            ipu.profile(model, x, y, path=page)
    assert any("failed.html" in note for note in raised.value.__notes__)
    found = Report.load(page).data
    assert not found["fits"] and len(found["tiles"]) == 2 and found["failure"] == str(raised.value)
    assert [each["fits"] for each in found["targets"]] == [True, False, True, True]
    assert found["memory"]["levers"] and found["advice"][0]["title"] == "Make it fit"


def test_a_pipeline(kit: Kit, tmp_path: Path) -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    config.configure_ipu_system()
    x, y = data(32)
    with IPUStrategy().scope():
        summed, line = sums(kit)
        inside = [kit.keras.layers.Dense(7), summed, *(kit.keras.layers.Dense(size) for size in (6, 3))]
        model = kit.keras.Sequential([kit.keras.layers.Input((FEATURES,)), *inside])
        model.compile(kit.keras.optimizers.SGD(0.05), loss_of(kit), steps_per_execution=4)
        set_stages(model, (0, 0, 1, 1))
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=4)
        model.fit(x, y, batch_size=4, verbose=0)
    report = ipu.profile(model, path=tmp_path / "pipeline.html")
    data_of = report.data
    jsonschema.validate(
        json.loads(report.json()), json.loads((Path(engine.report.__file__).parent / "schema.json").read_text())
    )
    steps = data_of["by_ipu"][0]["supersteps"]
    for rows in (data_of["operations"], steps):
        assert {row["source"] for row in rows if row["name"].startswith("sums")} >= {line}
    pipeline = data_of["pipeline"]
    assert (pipeline["stages"], pipeline["micro_batches"], len(pipeline["ipus"])) == (2, 4, 2)
    assert data_of["target"]["ipus"] == 2 and data_of["speed"]["samples_per_step"] == 16
    assert 0 < pipeline["bubble_share"] < 1
    assert {row["kind"] for row in pipeline["rows"]} >= {"forward", "backward", "update"}
    for each in pipeline["ipus"]:
        busy = sum(row["cycles"] for row in pipeline["rows"] if row["ipu"] == each["ipu"])
        assert busy == each["busy_cycles"] <= pipeline["cycles"]
    assert pipeline["cycles"] + data_of["cycles"]["host"] == data_of["cycles"]["total"]
    assert len(data_of["liveness"]["live_bytes"]) == len(data_of["supersteps"]) < len(data_of["operations"])
    assert 'id="pipeline"' in (tmp_path / "pipeline.html").read_text()
    lanes = {e["tid"] for e in json.loads(report.perfetto())["traceEvents"] if e["pid"] == 3 and e["ph"] == "X"}
    assert len(lanes) == 2


def test_profile_of_functions(tmp_path: Path) -> None:
    strategy = IPUStrategy()
    with strategy.scope():

        @tf.function
        def product(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
            return tf.linalg.matmul(a, b)

        a, b = tf.ones((16, 24)), tf.ones((24, 8))
        with pytest.raises(ConfigurationError, match="has not run"):
            ipu.profile(product, path=None)
        compiled = ipu.profile(product, a, b, path=tmp_path / "product.html")
        assert compiled.data["speed"]["amp_flop"] == {"f32": 2 * 16 * 24 * 8}
        assert compiled.data["name"] == "product" and (tmp_path / "product.html").exists()
        strategy.run(product, (tf.ones((4, 24)), b))
        assert ipu.profile(product, path=None).data["speed"]["amp_flop"] == {"f32": 2 * 4 * 24 * 8}
        assert ipu.profile(lambda x: x + 1.0, a, path=None).data["operations"]


def test_profile_of_a_program_and_of_nothing() -> None:
    assert ipu.profile(dense_step(), path=None).data["name"] == dense_step().name
    for subject in (3, "model", None, lambda x: x):
        with pytest.raises(ConfigurationError, match="Expected a Keras model"):
            ipu.profile(subject, path=None)


def test_a_baseline_becomes_a_section(tmp_path: Path) -> None:
    before = ipu.profile(dense_step(128), path=tmp_path / "before.html")
    for baseline in (before, tmp_path / "before.json", tmp_path / "before.html"):
        now = ipu.profile(dense_step(64), path=None, baseline=baseline)
        comparison = now.data["comparison"]
        assert comparison["before"] == before.data["name"] and comparison["growth"] < 0
    assert 'id="comparison"' in now.html()


def test_models_made_one_after_the_other_have_the_same_layers(kit: Kit) -> None:
    """Keras numbers the layers of a second model on, but a model that is built twice has the same layers."""
    layers = kit.keras.layers

    def made() -> Any:
        hidden = [layers.Dense(24, "relu"), layers.BatchNormalization(), layers.Dropout(0.1), layers.Dense(24)]
        return kit.keras.Sequential([layers.Input((FEATURES,)), *hidden, layers.Dense(3, "softmax")])

    x, y = data()
    first, second = (ipu.profile(kit.ipu_model(made), x, y, batch_size=8, path=None) for _ in range(2))
    found = compare(first, second)
    named = [
        {row["layer"] for row in each.data["operations"] if row["layer"].startswith("dense")}
        for each in (first, second)
    ]
    assert len(named[0]) == 3 and not named[0] & named[1]
    assert found.growth == 0 and not found.operations, found.text()


def test_configured_chip_and_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_ipu_model")
    config = ipu.config.IPUConfig()
    config.ipu_model.version = "ipu1"
    config.ipu_model.tiles_per_ipu = 40
    config.matmuls.poplar_options = {"partialsType": "half"}
    config.configure_ipu_system()
    data = ipu.profile(dense_step(), path=None).data
    assert data["target"]["name"] == "ipu1" and len(data["tiles"]) == 40
    assert data["speed"]["partials_type"] == "f16"
    assert {each["name"] for each in data["targets"]} == {"ipu1", "ipu2", "bow", "c600"}


@pytest.mark.explore
@pytest.mark.slow
def test_the_example_compares_two_reports(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "examples/report.py", "--folder", str(tmp_path)],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        timeout=HANGS_SECONDS,
        check=True,
    )
    assert "more than the 3 % allowed" in done.stdout and "fits: True" in done.stdout
    assert {file.name for file in tmp_path.iterdir()} == {name + form for name in ("small", "large") for form in FORMS}
    changed = {line["name"] for line in Report.load(tmp_path / "large.html").data["comparison"]["operations"]}
    assert any("second" in name for name in changed)


@pytest.mark.parametrize("mode", ["test", "predict"])
@pytest.mark.parametrize("ipus", [2, 4])
def test_a_pipeline_of_inference_is_the_one_that_runs(mode: str, ipus: int) -> None:
    """An execution has `steps_per_execution` micro-batches on each replica; an illegal number names that option."""
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = ipus
    config.configure_ipu_system()
    x, y = np.ones((64, 6), np.float32), np.ones((64, 3), np.float32)
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8), keras.layers.Dense(3)])
        model.set_pipeline_stage_assignment([0, 1])
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=4)
        model.compile("sgd", "mse", steps_per_execution=4)
        before = ipu.profile(model, x, y, batch_size=4, mode=mode, path=None).cycles["total"]
        model.evaluate(x, y, batch_size=4, verbose=0) if mode == "test" else model.predict(x, batch_size=4, verbose=0)
        assert before == ipu.profile(model, mode=mode, path=None).cycles["total"]
        model.compile("sgd", "mse", steps_per_execution=3)
        with pytest.raises(ValueError, match="steps_per_execution"):
            ipu.profile(model, x, y, batch_size=4, mode=mode, path=None)


@pytest.mark.parametrize("steps", [1, 4])
def test_a_report_is_of_one_of_the_replicas(steps: int) -> None:
    """Replicas run one after the other here, and side by side on chips: each computes its own micro-batches."""

    def products(ipus: int) -> tuple[int, Any]:
        config = ipu.config.IPUConfig()
        config.auto_select_ipus = ipus
        config.configure_ipu_system()
        with IPUStrategy().scope():
            model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8), keras.layers.Dense(3)])
            model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=steps)
            model.compile("sgd", "mse", steps_per_execution=4)
        model.fit(np.ones((64, 6), np.float32), np.ones((64, 3), np.float32), batch_size=4, verbose=0)
        (predicted,) = chip_scaling(model, replicas=[4])
        report = ipu.profile(model, path=None).data
        assert report["speed"]["samples_per_step"] == 4 * steps
        return sum(row["flop"] for row in report["operations"] if "MatMul" in row["name"]), predicted.samples_per_second

    (one, fast), (four, as_fast) = products(1), products(4)
    assert one == four == steps * 4 * 2 * (2 * 6 * 8 + 3 * 8 * 3) and as_fast == pytest.approx(fast, rel=0.05)
