"""Arguments of `pipeline()` that act in the chip's cost report: storage and options of stages."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from engine.profile.program_estimate import Estimate
from ipu._internal.compiler.calling import program_of_function
from ipu._internal.compiler.traced_pipelines import latest
from ipu._internal.profiling.estimates import estimate_of
from ipu._internal.profiling.make_report import report_of_compiled
from ipu.config import IPUConfig
from ipu.ipu_infeed_queue import IPUInfeedQueue
from ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipu.ipu_strategy import IPUStrategy
from ipu.ops.pipelining_ops import OptimizerFunctionOutput, PipelineStageOptions, pipeline

BATCH, WIDTH, COUNT = 16, 128, 4
WEIGHT = WIDTH * WIDTH * 4


@pytest.fixture(autouse=True)
def _ipus() -> None:
    config = IPUConfig()
    config.auto_select_ipus = 2
    config.configure_ipu_system()


def traced(**arguments: Any) -> Any:
    """The program of a function that calls a pipeline of two stages, each with two weights."""
    strategy = IPUStrategy()
    with strategy.scope():
        weights = [tf.Variable(np.full((WIDTH, WIDTH), 0.01 * k, np.float32)) for k in range(4)]
        optimizer = keras.optimizers.SGD(0.01, momentum=0.9)
        batch = np.ones((BATCH, WIDTH), np.float32)
        infeed = IPUInfeedQueue(tf.data.Dataset.from_tensors((batch, batch)).repeat())
        outfeed = IPUOutfeedQueue()

        def first(x: Any, y: Any) -> Any:
            return tf.tanh(tf.matmul(tf.tanh(tf.matmul(x, weights[0])), weights[1])), y

        def second(x: Any, y: Any) -> Any:
            return tf.reduce_mean(tf.square(tf.matmul(tf.tanh(tf.matmul(x, weights[2])), weights[3]) - y))

        @tf.function(jit_compile=True)
        def step() -> None:
            pipeline(
                [first, second],
                COUNT,
                infeed_queue=infeed,
                outfeed_queue=outfeed,
                optimizer_function=lambda loss: OptimizerFunctionOutput(optimizer, loss),
                **arguments,
            )

        _ = infeed.initializer
        strategy.run(step)
        return program_of_function(step)


def estimated(**arguments: Any) -> Estimate:
    return estimate_of(traced(**arguments))


def test_a_function_is_accounted_for_as_its_pipeline() -> None:
    found = estimated()
    assert found.pipeline is not None and [each.stages for each in found.pipeline.ipus] == [(0,), (1,)]
    for stage, contents in enumerate(each.contents for each in latest[0].report.stages):
        assert (contents.weights, contents.accumulators) == (2 * WEIGHT, 2 * WEIGHT)
        assert contents.optimizer_state == pytest.approx(2 * WEIGHT, abs=100)
        assert found.pipeline.part("forward", stage).compute > 0
    fed, returned = found.host_bytes
    assert (fed, returned) == (COUNT * 2 * BATCH * WIDTH * 4, COUNT * 4)
    assert found.samples_per_replica == COUNT * BATCH


def test_state_is_offloaded_unless_it_shall_not_be() -> None:
    default, kept = estimated(), estimated(offload_weight_update_variables=False)
    assert default.pipeline is not None and kept.pipeline is not None
    for one, other in zip(default.pipeline.ipus, kept.pipeline.ipus, strict=True):
        assert (one.streamed_bytes, other.streamed_bytes) == (2 * WEIGHT, 0)
        assert one.estimate.tiles.always_live_bytes.sum() < other.estimate.tiles.always_live_bytes.sum()
    for stage in range(2):
        update = default.pipeline.part("update", stage)
        seconds = update.streaming / default.target.clock_hz
        assert seconds == pytest.approx(4 * WEIGHT / default.target.streaming_memory_bytes_per_second, rel=0.01)
    assert default.cycles > kept.cycles


def test_activations_are_offloaded() -> None:
    kept, offloaded = estimated(), estimated(offload_activations=True)
    assert kept.pipeline is not None and offloaded.pipeline is not None
    for one, other in zip(kept.pipeline.ipus, offloaded.pipeline.ipus, strict=True):
        assert other.stash_bytes == 0 and other.streamed_bytes == one.streamed_bytes + one.stash_bytes
    assert offloaded.cycles > kept.cycles


def test_options_reach_the_plans_of_their_stage() -> None:
    none, little = PipelineStageOptions(), PipelineStageOptions(matmul_options={"availableMemoryProportion": 0.0005})
    plain, other = estimated(), estimated(forward_propagation_stages_poplar_options=[none, little])
    assert plain.pipeline is not None and other.pipeline is not None
    pairs = zip(plain.pipeline.parts, other.pipeline.parts, strict=True)
    assert {(a.kind, a.stage) for a, b in pairs if a != b} == {("forward", 1)}


def test_the_report_has_the_pipeline() -> None:
    data = report_of_compiled(traced(), "step").data
    assert data["pipeline"] is not None and data["target"]["ipus"] == 2
