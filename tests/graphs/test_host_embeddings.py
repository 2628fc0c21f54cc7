"""Host embeddings in a tf.Graph: each session has a table, which is trained as one on the device, and saved."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu
from tensorflow.python.eager import context

from tests.strategy.helpers import replicas

v1 = tf.compat.v1
ops = ipu.embedding_ops
RANDOM = np.random.default_rng(6)
ROWS, WIDTH, BATCH = 20, 5, 6
TABLE = RANDOM.normal(size=(ROWS, WIDTH)).astype(np.float32)
IDS = RANDOM.integers(0, ROWS, (6, BATCH)).astype(np.int32)
RATE = 1 / 64


@pytest.fixture(autouse=True)
def graph() -> Iterator[tf.Graph]:
    with tf.Graph().as_default() as graph:
        yield graph


def loss_of(rows: tf.Tensor) -> tf.Tensor:
    weights = v1.get_variable("weights", initializer=np.linspace(0.5, 1.5, WIDTH, dtype=np.float32), use_resource=True)
    return tf.reduce_sum((rows * weights) ** 2)


def on_the_host(spec: Any) -> tuple[Any, Any]:
    made = ops.create_host_embedding(
        "table", [ROWS, WIDTH], tf.float32, "ENCODING", spec, tf.constant_initializer(TABLE)
    )
    return made, made.lookup


def on_the_device() -> tuple[Any, Any]:
    table = v1.get_variable("table", initializer=TABLE, use_resource=True)
    return table, lambda ids: ops.embedding_lookup(table, ids)


def program(lookup: Any, optimizer: Any) -> tuple[Any, Any]:
    ids = v1.placeholder(tf.int32, [BATCH])

    def body(loss: tf.Tensor, ids: tf.Tensor) -> Any:
        loss = loss_of(lookup(ids))
        with tf.control_dependencies([optimizer.minimize(loss)]):
            return tf.identity(loss), ids

    return ids, ipu.ipu_compiler.compile(lambda ids: ipu.loops.repeat(3, body, [0.0, ids])[0], [ids])


@pytest.mark.parametrize("together", [1, 3])
def test_training_equals_that_of_a_table_on_the_device(together: int, tmp_path: Path) -> None:
    def optimizer() -> Any:
        inner = v1.train.GradientDescentOptimizer(RATE)
        return ipu.optimizers.GradientAccumulationOptimizerV2(inner, together) if together > 1 else inner

    spec = ops.HostEmbeddingSGDGAOptimizerSpec(RATE, together) if together > 1 else ops.HostEmbeddingOptimizerSpec(RATE)
    made, lookup = on_the_host(spec)
    assert "table/__dummy" in [v.op.name for v in v1.trainable_variables()]
    ids, result = program(lookup, optimizer())
    saver, table = v1.train.Saver(), made.get_embedding_tensor()
    with v1.Session() as session, v1.Session() as other:
        for each in (session, other):
            each.run(v1.global_variables_initializer())
        with pytest.raises(tf.errors.FailedPreconditionError, match="register"):
            session.run(result, {ids: IDS[0]})
        with pytest.raises(ValueError, match="a session"), made.register():
            pass
        with made.register(session):
            losses = [session.run(result, {ids: batch}) for batch in IDS]
            with pytest.raises(tf.errors.FailedPreconditionError, match="register"):
                other.run(result, {ids: IDS[0]})
        found = session.run(table)
        path = saver.save(session, str(tmp_path / "saved"))
        np.testing.assert_array_equal(other.run(table), TABLE)
        saver.restore(other, path)
        np.testing.assert_array_equal(other.run(table), found)
        with made.register(other):
            other.run(result, {ids: IDS[0]})
            assert abs(other.run(table) - found).max() > 1e-3
        np.testing.assert_array_equal(session.run(table), found)
    with tf.Graph().as_default(), v1.Session() as session:
        variable, lookup = on_the_device()
        ids, result = program(lookup, optimizer())
        session.run(v1.global_variables_initializer())
        expected = [session.run(result, {ids: batch}) for batch in IDS]
        np.testing.assert_allclose(losses, expected, rtol=1e-5)
        np.testing.assert_allclose(found, session.run(variable), rtol=1e-5, atol=1e-6)


def test_gradients_are_summed_over_replicas() -> None:
    replicas(2)
    made, lookup = on_the_host(ops.HostEmbeddingOptimizerSpec(RATE))
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(IDS))

    def step(ids: tf.Tensor) -> Any:
        loss = tf.reduce_sum(lookup(ids) ** 2) / 2
        return v1.train.GradientDescentOptimizer(1.0).minimize(loss)

    trained = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(3, step, [], infeed))
    with v1.Session() as session:
        session.run([v1.global_variables_initializer(), infeed.initializer])
        with made.register(session):
            session.run(trained)
        expected = TABLE.copy()
        for batches in IDS.reshape(3, 2 * BATCH):
            np.subtract.at(expected, batches, np.float32(RATE) * expected[batches])
        np.testing.assert_allclose(session.run(made.get_embedding_tensor()), expected, rtol=1e-5)


def pipelined(lookup: Any, rate: float) -> Any:
    """The losses of two updates of a pipeline of two stages on two replicas, with a mean over replicas."""
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(np.tile(IDS, [4, 1])))
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    optimizer = ipu.optimizers.CrossReplicaOptimizer(v1.train.GradientDescentOptimizer(rate))
    result = ipu.ipu_compiler.compile(
        lambda: ipu.pipelining_ops.pipeline(
            [lookup, lambda rows: tf.reduce_sum(rows**2)],
            gradient_accumulation_count=4,
            repeat_count=2,
            infeed_queue=infeed,
            outfeed_queue=outfeed,
            optimizer_function=lambda loss: ipu.pipelining_ops.OptimizerFunctionOutput(optimizer, loss),
        )
    )
    losses = outfeed.dequeue()

    def run(session: Any) -> Any:
        session.run([v1.global_variables_initializer(), infeed.initializer])
        return lambda: (session.run(result), session.run(losses))[1]

    return run


def test_a_pipeline_on_replicas_equals_that_of_a_table_on_the_device() -> None:
    replicas(4)
    made, lookup = on_the_host(ops.HostEmbeddingSGDGAOptimizerSpec(RATE, 4))
    run = pipelined(lookup, RATE)
    with v1.Session() as session:
        train = run(session)
        with made.register(session):
            losses = train()
        found = session.run(made.get_embedding_tensor())
    with tf.Graph().as_default(), v1.Session() as session:
        variable, lookup = on_the_device()
        expected = pipelined(lookup, 2 * RATE)(session)()
        np.testing.assert_allclose(losses, expected, rtol=1e-5)
        np.testing.assert_allclose(found, session.run(variable), rtol=1e-5, atol=1e-6)
    assert abs(found - TABLE).max() > 0.01


def test_a_program_of_inference_in_a_finalized_graph() -> None:
    made, lookup = on_the_host(None)
    rows = ipu.ipu_compiler.compile(lookup, [tf.constant(IDS)])
    assert not v1.trainable_variables()
    initialize = v1.global_variables_initializer()
    v1.get_default_graph().finalize()
    with v1.Session() as session:
        session.run(initialize)
        with made.register(session):
            np.testing.assert_array_equal(session.run(rows), [TABLE[IDS]])


def test_a_program_with_look_ups_must_not_use_the_variable() -> None:
    made, lookup = on_the_host(ops.HostEmbeddingOptimizerSpec(RATE))
    ids, table = tf.constant(IDS[0]), made.get_embedding_tensor()
    both = ipu.ipu_compiler.compile(lambda ids: (lookup(ids), table.assign_add(tf.ones_like(table))), [ids])
    alone = ipu.ipu_compiler.compile(lambda: table.assign_add(tf.ones_like(table), read_value=False))
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        with made.register(session):
            with pytest.raises(ValueError, match="'table' to leave its variable alone"):
                session.run(both)
            session.run(alone)
        np.testing.assert_array_equal(session.run(table), TABLE + 1)


def test_an_array_of_no_graph_is_trained_in_each_graph() -> None:
    array = TABLE.copy()
    with tf.init_scope(), context.eager_mode():
        made = ops.HostEmbedding("array", array, optimizer_spec=ops.HostEmbeddingOptimizerSpec(RATE))
    expected = TABLE.copy()
    for number in range(2):
        with tf.Graph().as_default(), v1.Session() as session:
            ids = v1.placeholder(tf.int32, [BATCH])

            def step(ids: tf.Tensor) -> Any:
                loss = tf.reduce_sum(made.lookup(ids) ** 2) / 4 + tf.reduce_sum(made.lookup(ids) ** 2) / 4
                return v1.train.GradientDescentOptimizer(1.0).minimize(loss)

            trained = ipu.ipu_compiler.compile(step, [ids])
            assert [v.op.name for v in v1.trainable_variables()] == ["array/__dummy"]
            session.run(v1.global_variables_initializer())
            with made.register(session):
                session.run(trained, {ids: (batch := np.arange(number, number + BATCH, dtype=np.int32))})
        expected[batch] *= (1 - RATE / 2) ** 2
        np.testing.assert_allclose(array, expected, rtol=1e-3)
        assert abs(array - TABLE).max() > 0.01
