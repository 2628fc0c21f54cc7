"""`set_pipelining_options`: its refusals, saved options, and the picture of a schedule."""

from __future__ import annotations

import functools
import logging
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import tensorflow as tf

from engine.partition.schedule import devices_of, make_schedule
from ipu._internal.compiler.storage import STORAGE
from ipu.config import DeviceConnectionType, IPUConfig
from ipu.gradient_accumulation import GradientAccumulationReductionMethod
from ipu.ipu_strategy import IPUStrategy
from ipu.ops.pipelining_ops import PipelineSchedule, PipelineStageOptions, RecomputationMode
from keras_ext.extension import options_of
from keras_ext.extensions import PipelineStage
from keras_ext.pipelining.chart import svg
from keras_ext.pipelining.options import pipelining_of
from keras_ext.pipelining.schedules import pipeline_report
from tests.keras.helpers import FEATURES, KITS, Kit, data, keras3_only
from tests.keras.pipelines import BATCH, mlp, set_stages, twins


@pytest.fixture
def model(kit: Kit) -> Any:
    with IPUStrategy().scope():
        return mlp(kit)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gradient_accumulation_steps_per_replica": 0}, "at least 1. Received: 0"),
        ({"gradient_accumulation_steps_per_replica": 2.0}, "at least 1. Received: 2.0"),
        ({"gradient_accumulation_steps_per_replica": True}, "at least 1. Received: True"),
        ({"device_mapping": 1}, "list of integers"),
        ({"device_mapping": ["0", "1"]}, "list of integers"),
        ({"device_mapping": [0, -1]}, "list of integers"),
        ({"accumulate_outfeed": 1}, "True, False or None. Received: 1"),
        ({"gradient_accumulation_reduction_method": "median"}, "'sum', 'mean', 'running_mean'. Received: 'median'"),
        ({"gradient_accumulation_count": 4}, "give gradient_accumulation_steps_per_replica"),
        ({"repeat_count": 4}, "follows from steps_per_execution"),
        ({"batch_serialization_iterations": 2}, "Keras models take whole batches"),
        ({"inputs": []}, "Keras feeds the model"),
        ({"infeed_queue": None}, "set_infeed_queue_options"),
        ({"outfeed_queue": None}, "set_outfeed_queue_options"),
        ({"computational_stages": []}, "set_pipeline_stage_assignment"),
        ({"optimizer_function": None}, "that of compile"),
        ({"outfeed_loss": True}, "Keras returns the loss"),
        ({"outfeed_mask": []}, "Keras returns loss and metrics"),
        ({"pipeline_sched": 0}, "Remove it"),
        ({"pipeline_schedule": "Grouped"}, "Received: 'Grouped'"),
        ({"recomputation_mode": "Auto"}, "a RecomputationMode or None"),
        ({"forward_propagation_stages_poplar_options": {}}, "a list or tuple"),
        ({"backward_propagation_stages_poplar_options": [None]}, "PipelineStageOptions"),
        ({"weight_update_poplar_options": {}}, "PipelineStageOptions"),
        ({"offload_activations": "yes"}, "True, False or None. Received: 'yes'"),
        ({"gradient_accumulation_dtype": tf.int32}, "tf.float32"),
        ({"accumulate_outfeed_dtype": "numbers"}, "a dtype of numbers"),
        ({"replicated_optimizer_state_sharding": True, "offload_weight_update_variables": False}, "Leave one of"),
    ],
)
def test_options_refused(model: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as error:
        model.set_pipelining_options(**options)
    assert message in str(error.value)
    assert options_of(model) == {}


@pytest.mark.parametrize(
    ("schedule", "mode"),
    [
        (PipelineSchedule.Sequential, RecomputationMode.RecomputeThenBackpropagate),
        (PipelineSchedule.Interleaved, RecomputationMode.RecomputeAndBackpropagateInterleaved),
    ],
)
def test_recomputation_modes_that_a_schedule_lacks(model: Any, schedule: Any, mode: Any) -> None:
    with pytest.raises(NotImplementedError, match="recomputation mode"):
        model.set_pipelining_options(pipeline_schedule=schedule, recomputation_mode=mode)


def test_continuous_updates_were_never_implemented(model: Any) -> None:
    model.set_pipelining_options(continuous_weight_updates=False)
    with pytest.raises(NotImplementedError):
        model.set_pipelining_options(continuous_weight_updates=True)


def test_options_that_depend_on_the_stages_are_checked_when_these_are_known(model: Any) -> None:
    set_stages(model, [0, 0, 1, 1])
    model.set_pipelining_options(4, forward_propagation_stages_poplar_options=[PipelineStageOptions()] * 3)
    with pytest.raises(ValueError, match="each of 2 stages. Received: 3"):
        pipelining_of(model, training=True)
    model.set_pipelining_options(4, device_mapping=[0, 0], pipeline_schedule=PipelineSchedule.Interleaved)
    with pytest.raises(NotImplementedError, match="different IPUs"):
        pipelining_of(model, training=True)
    assert pipelining_of(model, training=False) is not None


def trained_weights(model: Any) -> list[np.ndarray]:
    x, y = data(8 * BATCH)
    model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0)
    return model.get_weights()


@functools.cache
def estimated(
    kit_name: str, *flags: str, connection: str = "ALWAYS", remote: bool = False, **others: Any
) -> tuple[Any, Any, Any]:
    """The weights of two replicas on four IPUs after training, the report and the schedule."""
    _, model = twins(KITS[kit_name], mlp, [0, 0, 1, 1], 4, **dict.fromkeys(flags, True), **others)
    config = IPUConfig()
    config.auto_select_ipus = 4
    config.device_connection.type = DeviceConnectionType[connection]
    config.device_connection.version = "ipu2"
    config.device_connection.enable_remote_buffers = remote
    config.configure_ipu_system()
    return trained_weights(model), pipeline_report(model), model.get_pipeline_schedule()


@pytest.mark.sample(1)
@pytest.mark.parametrize("option", STORAGE)
def test_flags_that_move_data_change_the_estimate_and_no_numbers(kit: Kit, option: str) -> None:
    """Weights are offloaded where they are sharded."""
    name = "keras" if kit.is_keras3 else "tf_keras"
    flags = (option, "replicated_weight_sharding") if option == "offload_weights" else (option,)
    on_tiles = {"offload_weight_update_variables": False}
    kept = {} if option in ("offload_weight_update_variables", "replicated_optimizer_state_sharding") else on_tiles
    found = [estimated(name, **on_tiles), estimated(name, *flags, **kept)]
    (weights, plain, rows), (same, moved, others) = found
    for one, other in zip(weights, same, strict=True):
        np.testing.assert_array_equal(one, other)
    assert rows == others and plain.transfers == () and moved.transfers
    first, other = plain.stages[0], moved.stages[0]
    held = first.contents
    assert held == other.contents and held.optimizer_state >= held.weights == held.accumulators > 0
    half, stash = -(-held.weights // 2), (first.micro_batches - 1) * first.activation_bytes
    streaming, tiles = {
        "offload_activations": (stash, stash),
        "offload_gradient_accumulation_buffers": (held.accumulators,) * 2,
        "offload_weight_update_variables": (held.optimizer_state,) * 2,
        "replicated_optimizer_state_sharding": (-(-held.optimizer_state // 2), held.optimizer_state),
        "offload_weights": (half, held.weights),
        "replicated_weight_sharding": (0, held.weights - half),
    }[option]
    assert (other.streaming_bytes, first.tile_bytes - other.tile_bytes) == (streaming, tiles)
    assert moved.tile_bytes_by_ipu[0] < plain.tile_bytes_by_ipu[0]
    assert ("in streaming memory" in moved.table()) == (streaming > 0)


@keras3_only
def test_state_is_offloaded_by_default_where_there_are_remote_buffers(kit: Kit) -> None:
    """Training a model, section 6.7."""
    default, without = estimated("keras")[1], estimated("keras", connection="ON_DEMAND")[1]
    assert estimated("keras", connection="ON_DEMAND", remote=True)[1].transfers == default.transfers
    for stage, other in zip(default.stages, without.stages, strict=True):
        assert stage.streaming_bytes == stage.contents.optimizer_state > 0
        assert other.streaming_bytes == 0 and other.tile_bytes == stage.tile_bytes + stage.streaming_bytes
    assert default.transfers and without.transfers == ()


def test_dtypes_of_sums_change_the_estimate(kit: Kit) -> None:
    reports = {}
    dtypes = {"accumulate_outfeed_dtype": tf.float64, "gradient_accumulation_dtype": tf.float16}
    for name, given in {"plain": {}, "others": dtypes}.items():
        _, model = twins(kit, mlp, [0, 0, 1, 1], 4, accumulate_outfeed=True, **given)
        trained_weights(model)
        reports[name] = pipeline_report(model)
    stages = {name: [stage.contents for stage in report.stages] for name, report in reports.items()}
    for plain, other in zip(stages["plain"], stages["others"], strict=True):
        assert (other.accumulators, other.weights) == (plain.accumulators // 2, plain.weights)
    # Loss and accuracy are summed in eight bytes each instead of four, in the last stage.
    assert [o.states - p.states for p, o in zip(stages["plain"], stages["others"], strict=True)] == [0, 8]


@pytest.mark.sample(1)
@pytest.mark.parametrize("asked", [tf.float16, lambda spec: {"loss": tf.float16, "accuracy": None}[spec.name]])
def test_logs_are_summed_in_the_dtype_asked_for(kit: Kit, asked: Any) -> None:
    x, y = data(8 * BATCH)
    logs = []
    for given in ({}, {"accumulate_outfeed_dtype": asked}):
        _, model = twins(kit, mlp, [0, 0, 1, 1], 4, accumulate_outfeed=True, **given)
        found: list[float] = []
        callback = kit.keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda _, logs, to=found: to.append(logs["loss"])
        )
        model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0, callbacks=[callback])
        logs += found
    assert logs[0] != logs[1]
    np.testing.assert_allclose(logs[1], logs[0], rtol=4 * 2.0**-11)  # four roundings to float16


def test_accumulation_options_of_both_setters_share_the_reduction(model: Any) -> None:
    model.set_pipelining_options(4, gradient_accumulation_reduction_method=GradientAccumulationReductionMethod.MEAN)
    assert options_of(model)["gradient_accumulation_reduction_method"] == 1
    model.set_gradient_accumulation_options(2)
    assert options_of(model)["gradient_accumulation_reduction_method"] == 0


def test_an_optimizer_with_a_minimize_of_its_own_is_refused(kit: Kit) -> None:
    class Own(kit.keras.optimizers.SGD):  # type: ignore[misc, name-defined]
        def minimize(self, *arguments: Any, **named: Any) -> Any:
            raise AssertionError("never called")

    with IPUStrategy().scope():
        model = mlp(kit)
        model.compile(Own(0.1), "mse", steps_per_execution=4)
    set_stages(model, [0, 0, 1, 1])
    model.set_pipelining_options(4)
    x, _ = data(4 * BATCH)
    with pytest.raises(ValueError, match="does not override minimize"):
        model.fit(x, x[:, :3], batch_size=BATCH, verbose=0)


def stage_numbers(model: Any) -> list[Any]:
    return [assignment.pipeline_stage for assignment in model.get_pipeline_stage_assignment()]


@pytest.mark.parametrize("in_scope", [True, False])
def test_options_and_stages_come_back(kit: Kit, model: Any, in_scope: bool, tmp_path: Path) -> None:
    set_stages(model, [0, 0, 1, 2])
    model.set_pipelining_options(
        6, [0, 1, 0], True, "mean", pipeline_schedule=PipelineSchedule.Grouped, offload_weights=False
    )
    path = tmp_path / "model.keras"
    model.save(path)
    if not in_scope:
        assert not hasattr(kit.keras.models.load_model(path), "set_pipelining_options")
        return
    with IPUStrategy().scope():
        loaded = kit.keras.models.load_model(path)
    assert stage_numbers(loaded) == [0, 0, 1, 2]
    names = ("gradient_accumulation_steps_per_replica", "device_mapping", "accumulate_outfeed")
    assert [options_of(loaded)[f"pipelining_{name}"] for name in names] == [6, [0, 1, 0], True]
    assert options_of(loaded)["gradient_accumulation_reduction_method"] == 1
    assert "pipelining_kwargs" not in options_of(loaded)


def test_what_is_not_saved_is_said(model: Any, caplog: pytest.LogCaptureFixture) -> None:
    model.set_pipelining_options(4, pipeline_schedule=PipelineSchedule.Interleaved)
    with caplog.at_level(logging.INFO, logger="ipu"):
        model.get_config()
    assert "leaves out pipelining_kwargs" in caplog.text


def test_stages_of_scopes_are_saved(kit: Kit) -> None:
    with IPUStrategy().scope():
        inputs = kit.keras.Input((FEATURES,))
        with PipelineStage(0):
            x = kit.keras.layers.Dense(4)(inputs)
        with PipelineStage(1):
            x = kit.keras.layers.Dense(4)(x)
        model = kit.keras.Model(inputs, x)
        config = model.get_config()
        again = kit.keras.Model.from_config(config)
        cloned = kit.keras.models.clone_model(model)
    assert config["pipeline_stage_assignment"] == [[0, 0, 0], [1, 0, 1]]
    assert stage_numbers(again) == stage_numbers(cloned) == [0, 1]


@keras3_only
@pytest.mark.parametrize("with_input", [True, False])
def test_stages_of_a_subclass_come_back(kit: Kit, with_input: bool, tmp_path: Path) -> None:
    keras = kit.keras

    class Embedded(keras.Model):  # type: ignore[misc, name-defined]
        def __init__(self, **named: Any) -> None:
            super().__init__(**named)
            self.embedding, self.head = keras.layers.Embedding(10, 4), keras.layers.Dense(2)

        def call(self, inputs: Any) -> Any:
            return self.head(self.embedding(inputs))

    with IPUStrategy().scope():
        model = Embedded()
        model.build(keras.Input((3,), batch_size=4, dtype="int32") if with_input else (4, 3))
        set_stages(model, [0, 1])
        model.save(tmp_path / "model.keras")
        loaded = keras.models.load_model(tmp_path / "model.keras", custom_objects={"Embedded": Embedded})
    assert stage_numbers(loaded) == [0, 1]
    for one, other in zip(loaded.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_schedule_is_drawn(kit: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = data(8 * BATCH)
    _, model = twins(kit, mlp, [0, 0, 1, 1], 4)
    with pytest.raises(RuntimeError, match="has run as a pipeline"):
        model.plot_pipeline(tmp_path / "early.svg")
    model.fit(x, y, batch_size=BATCH, verbose=0)
    monkeypatch.chdir(tmp_path)
    chart = model.plot_pipeline()
    assert chart.path == Path("pipeline.svg") and "pipeline.svg" in repr(chart)
    assert chart._repr_svg_() == (tmp_path / "pipeline.svg").read_text()
    rows = model.get_pipeline_schedule()
    assert repr(rows).splitlines()[0].startswith("Grouped schedule, 2 stages on 2 IPUs, 4 micro-batches")
    assert [line.split()[:3] for line in repr(rows).splitlines()[1:]] == [["IPU", "0", "F0"], ["IPU", "1", "."]]
    model.plot_pipeline(tmp_path / "pipeline.html")
    assert (tmp_path / "pipeline.html").read_text().startswith("<!DOCTYPE html>")
    with pytest.raises(ValueError, match=r"\.svg or \.html"):
        model.plot_pipeline(tmp_path / "pipeline.png")
    with pytest.raises(RuntimeError, match="mode 'predict'"):
        model.get_pipeline_schedule("predict")
    titles = {
        title.text for title in ElementTree.parse(tmp_path / "pipeline.svg").iter() if title.tag.endswith("title")
    }
    rows = model.get_pipeline_schedule()
    for row in rows:
        of = "" if row.micro_batch is None else f" of micro-batch {row.micro_batch}"
        assert f"slot {row.slot}, IPU {row.ipu}: {row.kind} of stage {row.stage}{of}" in titles
    assert len(titles) == len(rows)


@pytest.mark.parametrize("micro_batches", [8, 800])
def test_long_schedules_are_drawn_narrow(micro_batches: int) -> None:
    schedule = make_schedule("Interleaved", devices_of(4, None), micro_batches, training=True)
    root = ElementTree.fromstring(svg(schedule, 'a "model" & <more>'))
    assert float(root.attrib["width"]) <= 64 + max(6 * schedule.slots, 6000) + 20
    assert 'a "model" & <more>' in "".join(root.itertext())
