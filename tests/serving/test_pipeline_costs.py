"""Exported pipelines are estimated with their stages, schedule, iterations, and the options of single stages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from engine.errors import InvalidFile
from engine.files.executable_file import read_executable, write_executable
from engine.profile.program_estimate import Estimate
from engine.report.command import main
from engine.report.executables import estimator_of
from engine.report.report import Report
from engine.serving.manifest import read_manifest
from engine.target import target
from ipu import serving
from ipu.ipu_strategy import IPUStrategyV1
from ipu.ops.pipelining_ops import PipelineSchedule, PipelineStageOptions
from tests.keras.helpers import KITS

WIDTH, BATCH = 512, 16


def program_in(directory: Path) -> Path:
    return directory / "assets" / read_manifest(directory).executable


def estimated(directory: Path) -> Estimate:
    on_chip, _ = estimator_of(read_executable(program_in(directory)))
    return on_chip(target("ipu2"))


def export(directory: Path, **arguments: Any) -> Estimate:
    """The estimate of two stages with a product each, and four batches an execution."""
    weight = np.full((WIDTH, WIDTH), 0.01, np.float32)
    serving.export_pipeline(
        [lambda x: tf.tanh(tf.matmul(x, weight)), lambda x: tf.matmul(x, weight)],
        str(directory),
        4,
        predict_step_signature=[tf.TensorSpec((BATCH, WIDTH), tf.float32)],
        **arguments,
    )
    return estimated(directory)


def test_arguments_of_an_export_act_in_the_cost_report(tmp_path: Path, strategy: IPUStrategyV1) -> None:
    little = PipelineStageOptions(matmul_options={"availableMemoryProportion": 0.0005})
    plain = export(tmp_path / "plain")
    other = export(tmp_path / "other", poplar_options=[PipelineStageOptions(), little])
    assert plain.pipeline is not None and other.pipeline is not None
    assert (plain.pipeline.schedule, plain.pipeline.micro_batches) == ("Grouped", 4)
    assert plain.samples_per_replica == 4 * BATCH
    for stage in range(2):
        assert plain.pipeline.part("forward", stage).compute > 0
    pairs = zip(plain.pipeline.parts, other.pipeline.parts, strict=True)
    assert {(a.kind, a.stage) for a, b in pairs if a != b} == {("forward", 1)}
    one = export(
        tmp_path / "one", device_mapping=[0, 0], pipeline_schedule=PipelineSchedule.Sequential, name="my_pipeline"
    )
    assert one.pipeline is not None and one.pipeline.schedule == "Sequential" and len(one.pipeline.ipus) == 1
    names = [i.op_name for i in read_executable(program_in(tmp_path / "one")).module.entry.instructions]
    assert any("my_pipeline/" in name for name in names)


def test_the_command_makes_a_report_of_the_pipeline(tmp_path: Path, strategy: IPUStrategyV1) -> None:
    export(tmp_path / "model")
    program = program_in(tmp_path / "model")
    assert main(["make", str(program), "-o", str(tmp_path / "report.html")]) == 0
    data = Report.load(tmp_path / "report.json").data
    assert data["target"]["ipus"] == 2 and data["pipeline"]["micro_batches"] == 4
    executable = read_executable(program)
    executable.metadata["pipeline"] = "{}"
    write_executable(tmp_path / "broken.popef", executable)
    with pytest.raises(InvalidFile, match="stages of a pipeline"):
        estimator_of(read_executable(tmp_path / "broken.popef"))


@pytest.mark.parametrize("name", list(KITS))
def test_an_exported_keras_model_has_its_stages(name: str, tmp_path: Path, strategy: IPUStrategyV1) -> None:
    keras = KITS[name].keras
    with strategy.scope():
        layers = [keras.layers.Dense(WIDTH, "tanh"), keras.layers.Dense(WIDTH)]
        model = keras.Sequential([keras.layers.Input((WIDTH,)), *layers])
        model.compile(steps_per_execution=4)
    model.set_pipeline_stage_assignment([0, 1])
    run = model.export_for_ipu_serving(str(tmp_path / "1"), batch_size=BATCH)
    x = np.ones((BATCH, WIDTH), np.float32)
    np.testing.assert_allclose(run(x)[0], model(x), rtol=1e-5, atol=1e-5)
    found = estimated(tmp_path / "1")
    assert found.pipeline is not None
    for stage in range(2):
        assert found.pipeline.part("forward", stage).compute > 0
