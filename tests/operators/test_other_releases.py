"""Arguments that earlier or later releases have: the results are those of the call without, or with today's name."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import ipu
from engine.errors import ConfigurationError
from ipu import pipelining_ops, rnn_ops
from ipu.ipu_infeed_queue import IPUInfeedQueue
from ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipu.ipu_pipeline_estimator import IPUPipelineEstimatorSpec

FLAGS = {"options": {"availableMemoryProportion": "0.1"}, "options_bwd": {"partialsType": "half"}}
ROWS = np.random.default_rng(0).normal(size=(3, 2, 4)).astype(np.float32)


def test_pipeline_depth_is_the_count_of_micro_batches() -> None:
    with ipu.ipu_strategy.IPUStrategy().scope() as strategy:
        infeed, outfeed = IPUInfeedQueue(tf.data.Dataset.range(100).map(float)), IPUOutfeedQueue()
        stages = [lambda x: x * 2, lambda x: x + 1]

        @tf.function(jit_compile=True)
        def program() -> None:
            pipelining_ops.pipeline(stages, infeed_queue=infeed, outfeed_queue=outfeed, pipeline_depth=4)

        _ = infeed.initializer
        strategy.run(program)
        np.testing.assert_array_equal(np.ravel(outfeed.dequeue()), [1, 3, 5, 7])
    with pytest.raises(ConfigurationError, match="gradient_accumulation_count or pipeline_depth.* Received: both"):
        pipelining_ops.pipeline(stages, 4, infeed_queue=infeed, outfeed_queue=outfeed, pipeline_depth=4)


def test_pipeline_depth_of_an_estimator() -> None:
    spec = IPUPipelineEstimatorSpec(tf.estimator.ModeKeys.PREDICT, [abs, abs], pipeline_depth=6)
    assert spec.gradient_accumulation_count == 6 and not spec.pipeline_op_kwargs


def test_embedding_lookup_of_sorted_indices() -> None:
    table, ids = tf.constant(ROWS[0]), tf.constant([0, 0, 1])
    found = ipu.embedding_ops.embedding_lookup(table, ids, indices_are_sorted=True)
    np.testing.assert_array_equal(found, ROWS[0][[0, 0, 1]])


@pytest.mark.parametrize("name", ["PopnnLSTM", "PopnnGRU", "PopnnDynamicLSTM", "PopnnDynamicGRU"])
def test_flags_of_recurrent_layers(name: str) -> None:
    layer, given = getattr(rnn_ops, name), {"seq_len": [3, 1]} if "Dynamic" in name else {}
    kept = {"preserve_final_state": True} if name == "PopnnDynamicLSTM" else {}
    found = []
    for number, flags in enumerate(({}, FLAGS | kept)):
        made = layer(5, weights_initializer=tf.constant_initializer(0.1), name=f"{name}_{number}", **flags)
        found.append(tf.nest.flatten(made(ROWS, **given)))
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("package", [keras, tf_keras])
@pytest.mark.parametrize("name", ["PopnnLSTM", "PopnnGRU"])
def test_flags_of_recurrent_layers_of_keras(package: ModuleType, name: str) -> None:
    layer, same = (getattr(package.ipu.layers, name)(5, seed=1, **flags) for flags in (FLAGS, {}))
    np.testing.assert_array_equal(layer(ROWS), same(ROWS))
    assert type(layer).from_config(layer.get_config()).units == 5


def test_debug_options_of_data_sets(tmp_path: Path) -> None:
    data = tf.data.Dataset.range(8)
    ipu.utils.export_dataset_to_file(data, str(tmp_path / "rows.bin"), 3, apply_debug_options=False)
    np.testing.assert_array_equal(np.load(tmp_path / "rows.bin"), [0, 1, 2])
    figures = ipu.dataset_benchmark.dataset_benchmark(data, 1, 8, print_stats=False, apply_debug_options=False)
    assert json.loads(figures.numpy()[0])["epochs"][0]["elements_processed"] == 8
