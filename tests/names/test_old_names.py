"""Names of earlier and later releases that public programs use: they exist and act, or name their replacement."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import keras
import numpy as np
import popdist
import pytest
import tensorflow as tf
import tf_keras
from tensorflow.compiler.plugin.poplar.ops import (
    gen_pop_datastream_ops,
    gen_popnn_ops,
    gen_popops_ops,
    gen_poprand_ops,
    gen_poputil_ops,
)
from tensorflow.python import ipu

from engine.errors import ConfigurationError
from ipu._internal.names.version1_notes import note_version_1

v1 = tf.compat.v1
RNG = np.random.default_rng(0)


def compiled(function: Any, *arrays: np.ndarray, ipus: int = 1) -> Any:
    """The results of a program in a tf.Graph."""
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = ipus
    config.configure_ipu_system()
    with tf.Graph().as_default():
        fed = [v1.placeholder(each.dtype, each.shape) for each in arrays]
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            results = ipu.ipu_compiler.compile(function, fed)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            return session.run(results, dict(zip(fed, arrays, strict=True)))


@pytest.mark.parametrize(
    "name",
    [
        *("ipu.outlined_function", "ipu.function", "ipu.functional_ops.function"),
        *("ipu.ipu_optimizer.IpuOptimizer", "ipu.vertex_edsl.PlaceholderVertexExpr", "ipu.sharding.get_sharding"),
        *("ipu_tensorflow_addons.layers.Dropout", "ipu_tensorflow_addons.optimizers.AdamIpuOptimizer"),
        *("ipu_tensorflow_addons.v1.layers.PopnnLSTM", "ipu_tensorflow_addons.v1.optimizers.MapGradientOptimizer"),
        *("ipu_tensorflow_addons.v1.optimizers.CrossReplicaOptimizer", "popdist.getDeviceId"),
        "ipu.ipu_multi_worker_strategy.IPUMirroredVariable",
        "ipu.horovod.ipu_horovod_strategy.IPUSyncOnReadVariable",
        "ipu.keras.extensions.KerasExtensionBase",
        "keras.ipu.extensions.pipeline_stage_assignment.SequentialLayerPipelineStageAssignment",
        *("keras.ipu.optimizers.ALSOptimizerAdam", "tf_keras.ipu.optimizers.ALSOptimizerSGD"),
    ],
)
def test_a_name_is_imported_in_every_form(name: str) -> None:
    name = f"tensorflow.python.{name}" if name.startswith("ipu.") else name
    module, _, last = name.rpartition(".")
    found = import_module(name.partition(".")[0])
    for part in name.split(".")[1:]:
        found = getattr(found, part) if hasattr(found, part) else import_module(f"{found.__name__}.{part}")
    try:
        assert getattr(import_module(module), last) is found
    except ModuleNotFoundError:  # a class is no module
        assert not module.rpartition(".")[2].islower()


def test_modules_of_old_releases_are_those_of_today() -> None:
    assert import_module("ipu_tensorflow_addons.v1.layers.rnn_ops") is ipu.rnn_ops
    assert import_module("tensorflow.python.ipu.popnn_rnn") is ipu.rnn_ops
    assert import_module("tensorflow.python.ipu.poprand") is ipu.rand_ops
    assert import_module("tensorflow.python.ipu.popnn_normalization") is ipu.normalization_ops
    assert import_module("tensorflow.python.ipu.popops_cross_replica_sum") is ipu.cross_replica_ops


def test_rows_of_a_table() -> None:
    table, ids = RNG.random((7, 3)).astype("f"), np.array([0, 3, 3, 6], np.int32)
    updates = RNG.random((4, 3)).astype("f")

    def net(table: tf.Tensor, ids: tf.Tensor, updates: tf.Tensor) -> Any:
        rows = gen_popops_ops.ipu_multi_slice(table, ids)
        added = gen_popops_ops.ipu_multi_update_add(table, ids[:, None], updates, scale=0.5)
        replaced = gen_popops_ops.ipu_multi_update(table, tf.constant([5, 1]), updates[:2])
        return rows, tf.gradients(rows * updates, table)[0], added, replaced

    rows, gradient, added, replaced = compiled(net, table, ids, updates)
    np.testing.assert_array_equal(rows, table[ids])
    expected = np.zeros_like(table)
    np.add.at(expected, ids, updates)
    np.testing.assert_allclose(gradient, expected, rtol=1e-6)
    np.testing.assert_allclose(added, table + expected / 2, rtol=1e-6)
    table[[5, 1]] = updates[:2]
    np.testing.assert_array_equal(replaced, table)


def test_collectives_and_normalised_gradients() -> None:
    x = RNG.random((2, 4)).astype("f")

    def net(x: tf.Tensor) -> Any:
        own = x * tf.cast(1 + ipu.replication_ops.replication_index(), tf.float32)
        mean = gen_poputil_ops.ipu_replication_normalise(gen_popops_ops.ipu_cross_replica_sum(own))
        half = gen_poputil_ops.ipu_replication_normalise(tf.cast(x, tf.float16))
        return mean, gen_popops_ops.ipu_cross_replica_mean(own), gen_popops_ops.ipu_all_gather(own, 2), half

    mean, same, gathered, half = compiled(net, x, ipus=2)
    np.testing.assert_allclose(mean, 1.5 * x, rtol=1e-6)
    np.testing.assert_allclose(same, 1.5 * x, rtol=1e-6)
    np.testing.assert_allclose(gathered, [x, 2 * x], rtol=1e-6)
    np.testing.assert_array_equal(half, x.astype("e") / 2)


@pytest.mark.parametrize("batches", [1, 3])
def test_gradients_are_accumulated_in_a_loop(batches: int) -> None:
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def body(k: tf.Tensor) -> Any:
        total = gen_poputil_ops.ipu_stateful_gradient_accumulate(tf.stack([k, 2 * k]), num_mini_batches=batches)
        return k + 1, outfeed.enqueue(total)

    with tf.Graph().as_default():
        loop = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(6, body, [1.0]))
        rows = outfeed.dequeue()
        assert v1.global_variables() == []
        with v1.Session() as session:
            for _ in range(2):
                session.run(loop)
                sums = np.cumsum(np.arange(7))
                expected = [sums[k] - sums[k - batches] if k % batches == 0 else 0 for k in range(1, 7)]
                np.testing.assert_array_equal(session.run(rows), np.outer(expected, [1, 2]))


def test_queues_by_name() -> None:
    data = RNG.random((6, 4)).astype("f")
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(data), feed_name="old_in")
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue(feed_name="old_out")
    infeed.initializer  # noqa: B018
    strategy = ipu.ipu_strategy.IPUStrategy()

    @tf.function(jit_compile=True)
    def step() -> Any:
        (row,) = gen_pop_datastream_ops.pop_datastream_infeed_dequeue("old_in", [tf.float32], [[4]])
        outfeed.enqueue(row)
        return row * 2

    np.testing.assert_array_equal(strategy.run(step), data[0] * 2)
    np.testing.assert_array_equal(outfeed.dequeue(), data[:1])
    gen_pop_datastream_ops.ipu_delete_infeed(feed_id="old_in")
    gen_pop_datastream_ops.ipu_delete_outfeed(feed_id="old_out")
    with pytest.raises(tf.errors.NotFoundError, match="old_in"):
        gen_pop_datastream_ops.ipu_delete_infeed(feed_id="old_in")


def test_activations_and_dropout() -> None:
    x = RNG.standard_normal((5, 8)).astype("f")

    def net(x: tf.Tensor) -> Any:
        seed = tf.constant([1, 2])
        mask = gen_poprand_ops.ipu_dropout(x, rate=0.5, seed=seed)
        return gen_popnn_ops.ipu_gelu(x), mask, ipu.rand_ops.dropout(x, 0.5, seed=seed, ref=x)

    gelu, one, other = compiled(net, x)
    np.testing.assert_allclose(gelu, tf.nn.gelu(x, approximate=True), rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(one, other)
    with pytest.raises(TypeError, match="rates"):
        ipu.rand_ops.dropout(x, rates=0.3)


def test_ids_of_devices_and_classes_of_variables() -> None:
    config = ipu.config.IPUConfig()
    config.select_ipus = popdist.getDeviceId(ipus_per_replica=2)
    config.configure_ipu_system()
    strategy = ipu.ipu_multi_worker_strategy
    with ipu.ipu_strategy.IPUStrategy().scope():
        variable = tf.Variable(1.0)
        own = tf.Variable(1.0, synchronization=tf.VariableSynchronization.ON_READ, trainable=False)
    assert isinstance(variable, strategy.IPUMirroredVariable) and isinstance(own, strategy.IPUSyncOnReadVariable)
    assert not isinstance(variable, strategy.IPUSyncOnReadVariable)
    assert not isinstance(tf.constant(1.0), strategy.IPUMirroredVariable)
    with pytest.raises(ValueError, match="Nearest: 2"):
        popdist.getDeviceId(3)


def test_ipus_of_a_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    assert popdist.getNumIpusPerReplica() == 1 and popdist.getDeviceId() == popdist.getDeviceId(1)
    monkeypatch.setenv("POPDIST_NUM_IPUS_PER_REPLICA", "2")
    assert popdist.getNumIpusPerReplica() == 2 and popdist.getDeviceId() == popdist.getDeviceId(2)
    monkeypatch.setenv("POPDIST_NUM_IPUS_PER_REPLICA", "two")
    with pytest.raises(ConfigurationError, match="an integer of at least 1"):
        popdist.getNumIpusPerReplica()


@pytest.mark.parametrize("framework", [keras, tf_keras])
def test_optimizers_of_later_releases(framework: Any) -> None:
    with ipu.ipu_strategy.IPUStrategy().scope():
        optimizer = framework.ipu.optimizers.ALSOptimizerAdam(0.01, initial_loss_scaling_factor=16, update_frequency=2)
        again = framework.optimizers.deserialize(framework.optimizers.serialize(optimizer))
        assert again.get_config() == optimizer.get_config()
        model = framework.Sequential([framework.layers.Dense(1)])
        model.compile(optimizer, "mse", steps_per_execution=4)
        x = RNG.random((32, 3)).astype("f")
        losses = model.fit(x, x.sum(1), batch_size=4, epochs=3, verbose=0).history["loss"]
        assert losses[-1] < losses[0]
    with pytest.raises(AttributeError, match="set_gradient_accumulation_options"):
        framework.ipu.optimizers.ALSGradientAccumulationOptimizer  # noqa: B018
    with pytest.raises(AttributeError, match="all replicas and steps"):
        framework.ipu.ReplicatedMetricReductionMethod  # noqa: B018


def test_shards_of_operations() -> None:
    with tf.Graph().as_default():
        with ipu.scopes.ipu_shard(1):
            x = tf.constant(1.0) + tf.constant(2.0)
        y = tf.identity(x)
    assert ipu.sharding.get_sharding(x.op) == ipu.sharding.get_sharding(x)
    assert ipu.sharding.get_sharding(y.op) is None


PROGRAMS = {
    "tf.placeholder(tf.float32, [2])": "import tensorflow as tf",
    "tf.placeholder(tf.float32, [1])": "import tensorflow.compat.v1 as tf",
    "tf.Session().run(tf.constant(1.0))": "import tensorflow.compat.v1 as tf",
    "tf.train.AdamOptimizer().minimize(tf.Variable(1.0) * 2.0)": "import tensorflow.compat.v1 as tf",
    "tf.nothing": "import tensorflow as tf",
}


@pytest.mark.parametrize("line", PROGRAMS)
def test_errors_of_programs_of_version_1_name_the_lines_to_put_first(
    line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[BaseException] = []
    monkeypatch.setattr(sys, "excepthook", lambda _kind, error, _trace: shown.append(error))
    note_version_1.__wrapped__()
    with pytest.raises((AttributeError, RuntimeError)) as raised:
        exec(f"{PROGRAMS[line]}\nfrom tensorflow.python import ipu\n{line}", {})
    sys.excepthook(raised.type, raised.value, raised.tb)
    assert shown == [raised.value]
    assert any("`tf.disable_v2_behavior()`" in note for note in getattr(raised.value, "__notes__", ())) is (
        line != "tf.nothing"
    )


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("from tensorflow.contrib import ipu", "Use `from tensorflow.python import ipu`"),
        ("from tensorflow.contrib.ipu.python import utils", "Use `from tensorflow.python import ipu`"),
        ("import tensorflow.contrib.slim", "Use tf.compat.v1 or Keras"),
        ("from gcprofile import save_tf_report", r"gcprofile.save_tf_report, which .* Use ipu.profile\(model\)"),
        ("import poptorch", "poptorch, which .* Use TensorFlow and Keras"),
        ("import popart as po", "popart, which .* Use TensorFlow and Keras"),
        ("import gc_info", "gc_info, which .* Use `python -m ipu`"),
        ("from gcipuinfo import gcipuinfo", "gcipuinfo, which .* Use `python -m ipu`"),
        ("import poprun", "poprun, which .* Use `python -m ipu.run --processes N"),
        ("import libpvti as pvti", r"libpvti, which .* Use ipu.profile\(model\)"),
        ("import horovod.tensorflow as hvd", "of Horovod, .* Use `from tensorflow.python.ipu import horovod as hvd`"),
        ("from horovod import tensorflow as hvd", "Use `from tensorflow.python.ipu import horovod as hvd`"),
        ("import popdist.poptorch", "popdist.poptorch, which .* Use popdist.tensorflow"),
        ("from tensorflow.compiler.plugin.poplar.tests import test_utils as tu", r"Use ipu.profile\(model\)"),
        ("import tensorflow.compiler.plugin.poplar.ops.gen_sendrecv_ops", "Use ipu.scopes.outside_compilation_scope"),
        ("from tensorflow.python.ipu.ops.experimental import popfloat_cast_to_gfloat", "Use tf.cast"),
    ],
)
def test_modules_that_are_nowhere_say_what_to_use(line: str, advice: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=advice):
        exec(line)


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("from tensorflow.compiler.plugin.poplar.ops import gen_functional_ops", "Use ipu.outlined_function"),
        ("from tensorflow.compiler.plugin.poplar.ops import gen_popfloat_ops", "Use tf.cast to float16"),
        ("from tensorflow.compiler.plugin.poplar.ops import gen_popop_ops", "Nearest: .*.gen_popops_ops"),
        ("from tensorflow.python.ipu.ops import op_util", "Use ipu.optimizers.GradientAccumulationOptimizerV2"),
        ("from tensorflow.python.ipu import popfloat_ops", "Use tf.cast to float16"),
        ("from tensorflow.python.ipu import test_utils", r"Use ipu.profile\(model\)"),
        ("from ipu_tensorflow_addons.keras.layers import EffectiveTransformer", "Use keras.layers.MultiHeadAttention"),
        ("from popdist import getNumLocalIpus", "Nearest: popdist.getNumLocalReplicas"),
    ],
)
def test_names_of_modules_that_exist_say_what_to_use(line: str, advice: str) -> None:
    with pytest.raises(ImportError, match=advice):
        exec(line)


def test_modules_and_layers_of_old_releases_are_those_of_today() -> None:
    from tensorflow.compiler.plugin.poplar.driver.config_pb2 import IpuOptions
    from tensorflow.python.keras.ipu import PipelineStage
    from tensorflow_estimator.python.estimator import model_fn as model_fn_lib
    from tensorflow_estimator.python.estimator.model_fn import EstimatorSpec

    assert IpuOptions is ipu.config.IpuOptions and PipelineStage is ipu.keras.PipelineStage
    assert model_fn_lib.LOSS_METRIC_KEY == "loss" and EstimatorSpec is v1.estimator.EstimatorSpec
    for framework in (keras, tf_keras):
        layers = framework.ipu.layers
        old = [layers.GroupNorm, layers.InstanceNorm, layers.LayerNorm]
        assert old == [layers.GroupNormalization, layers.InstanceNormalization, layers.LayerNormalization]
