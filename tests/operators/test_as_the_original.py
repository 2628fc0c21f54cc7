"""Operations and queues pass the checks of the original's tests, against TensorFlow or NumPy."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from tensorflow.python import ipu

from ipu._internal.pipelining.options import REDUCTIONS

v1 = tf.compat.v1
RNG = np.random.default_rng(5)


def strategy_of(ipus: int | list[int] = 1, device: str = "/device:IPU:0", recompute: bool = False) -> Any:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = ipus
    config.allow_recompute = recompute
    config.configure_ipu_system()
    return ipu.ipu_strategy.IPUStrategyV1(device)


SHAPES = [((2, 8, 16), (16, 5)), ((8, 16), (3, 16, 5)), ((2, 1, 8, 16), (3, 16, 5)), ((1, 8, 16), (4, 16, 5))]


@pytest.mark.parametrize("first, second", SHAPES)
@pytest.mark.parametrize("dimension", ["a_columns", "a_rows_b_columns", "b_rows"])
def test_serialized_products_broadcast(first: Any, second: Any, dimension: str) -> None:
    a, b = (RNG.standard_normal(shape).astype("f") for shape in (first, second))
    factor = 5 if dimension == "b_rows" else 4

    @tf.function(jit_compile=True)
    def both(a: tf.Tensor, b: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch([a, b])
            result = ipu.math_ops.serialized_matmul(a, b, factor, dimension)
            loss = tf.reduce_sum(tf.sin(result))
        return result, *tape.gradient(loss, [a, b])

    with tf.GradientTape() as tape:
        x, y = tf.constant(a), tf.constant(b)
        tape.watch([x, y])
        expected = tf.matmul(x, y)
        loss = tf.reduce_sum(tf.sin(expected))
    for found, value in zip(strategy_of().run(both, (a, b)), (expected, *tape.gradient(loss, [x, y])), strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("given", ["sum", "MEAN", "Running_Mean", 0, 2])
def test_reductions_are_parsed(given: Any) -> None:
    kind = ipu.gradient_accumulation.GradientAccumulationReductionMethod
    member = kind.parse(given)
    assert member is kind.parse(member) and member.name.lower() == REDUCTIONS[member.value]
    with pytest.raises(ValueError, match="Cannot parse"):
        kind.parse("median")


@pytest.mark.parametrize("framework", [keras, tf_keras])
def test_the_reduction_has_two_names(framework: Any) -> None:
    with strategy_of().scope():
        weights = []
        for name in ("reduction_method", "gradient_accumulation_reduction_method"):
            model = framework.Sequential([framework.layers.Dense(1, kernel_initializer="ones")])
            model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=4, **{name: "mean"})
            model.compile("sgd", "mse", steps_per_execution=4)
            model.fit(np.ones((8, 3), np.float32), np.zeros(8, np.float32), batch_size=2, verbose=0)
            weights.append(model.get_weights()[0])
    np.testing.assert_array_equal(*weights)
    assert weights[0][0, 0] == pytest.approx(1 - 0.01 * 2 * 3, rel=1e-5)


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
def test_a_mean_over_replicas_does_not_overflow(dtype: tf.DType) -> None:
    x = tf.constant([65504.0, -65504.0, 1.0, float("inf")] if dtype == tf.float16 else [3e38, -3e38, 1.0, 2.0], dtype)

    @tf.function(jit_compile=True)
    def means(x: tf.Tensor) -> Any:
        mean = ipu.cross_replica_ops.cross_replica_mean(x)
        parts = ipu.reduce_scatter_op.reduce_scatter(x, 4, op="COLLECTIVE_OP_MEAN")
        return mean, parts

    mean, parts = strategy_of(4).run(means, (x,))
    expected = tf.cast(x, tf.float64)
    for row in np.reshape(tf.cast(mean, tf.float64), (-1, 4)):
        np.testing.assert_array_equal(row, expected)
    assert np.ravel(tf.cast(parts, tf.float64))[0] == expected[0]


@pytest.mark.parametrize("ordinal", [0, 1])
def test_the_device_of_a_queue_is_that_of_its_scope(ordinal: int) -> None:
    strategy = strategy_of([1, 1], f"/device:IPU:{ordinal}")
    with strategy.scope():
        dataset = tf.data.Dataset.from_tensors(np.float32(2)).repeat()
        infeed, outfeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset), ipu.ipu_outfeed_queue.IPUOutfeedQueue()
        infeed.initializer  # noqa: B018

        @tf.function(jit_compile=True)
        def step() -> Any:
            return ipu.loops.repeat(3, lambda total, x: (total + x, outfeed.enqueue(total)), [0.0], infeed)

        assert strategy.run(step) == 6.0
        np.testing.assert_array_equal(outfeed.dequeue(), [0, 2, 4])


@pytest.mark.parametrize("kind", ["inference", "training", "recomputed", "a tensor as count"])
def test_stages_count_micro_batches(kind: str) -> None:
    """Gradients, of 1, 2, 3 and 4 times the weight, are those of the same numbers."""
    strategy = strategy_of(2, recompute=kind == "recomputed")
    with strategy.scope():
        w = tf.Variable(1.0)
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensors(np.float32(0.5)).repeat())
        outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

        def first(*inputs: tf.Tensor) -> Any:
            count = ipu.internal_ops.get_current_iteration_counter()
            return tf.sin(inputs[-1] * w * tf.cast(count + 1, tf.float32)), count

        def second(x: tf.Tensor, count: tf.Tensor) -> Any:
            return x, tf.cast(count * 10 + ipu.internal_ops.get_current_iteration_counter(), tf.float32)

        def optimizer(loss: tf.Tensor, _: tf.Tensor) -> Any:
            return ipu.pipelining_ops.OptimizerFunctionOutput(v1.train.GradientDescentOptimizer(0.1), loss)

        @tf.function(jit_compile=True)
        def step(count: tf.Tensor) -> None:
            ipu.pipelining_ops.pipeline(
                [first, second],
                count if kind == "a tensor as count" else 4,
                repeat_count=2,
                infeed_queue=infeed,
                outfeed_queue=outfeed,
                pipeline_schedule=ipu.pipelining_ops.PipelineSchedule.Sequential,
                reduction_method="sum",
                optimizer_function=None if kind == "inference" else optimizer,
            )

        infeed.initializer  # noqa: B018
        expected, numbers = 1.0, np.arange(1, 5) / 2
        for _ in range(2):
            strategy.run(step, (tf.constant(4),))
            np.testing.assert_array_equal(outfeed.dequeue()[1], [0, 11, 22, 33] * 2)
            for _ in range(0 if kind == "inference" else 2):
                expected -= 0.1 * np.sum(numbers * np.cos(numbers * expected))
        assert w.numpy() == pytest.approx(expected, abs=1e-5)


def test_gradients_are_captured_in_outlined_functions() -> None:
    x = tf.constant([0.5, 1.0])

    @tf.function(jit_compile=True)
    def step(x: tf.Tensor) -> Any:
        with ipu.eager.backprop.GradientCaptureTape() as tape:
            tape.watch(x)

            @ipu.outlined_function
            def inner(x: tf.Tensor) -> tf.Tensor:
                return ipu.grad_util_ops.capture_upstream_gradients(tf.tanh(x), tag="t") * 3.0

            y = inner(x) * 2.0
        return tape.gradient(y, x), tape.captured_gradients

    gradient, captured = strategy_of().run(step, (x,))
    np.testing.assert_allclose(gradient, 6 * (1 - np.tanh(x) ** 2), rtol=1e-5)
    np.testing.assert_allclose(captured["t"], [6, 6])


@pytest.mark.parametrize("zero_unused", [False, True])
def test_gradients_of_slices_are_tensors(zero_unused: bool) -> None:
    dst, src, factors = (RNG.standard_normal((6, 4)).astype("f") for _ in range(3))
    kinds = []

    def net(dst: tf.Tensor, src: tf.Tensor, factors: tf.Tensor) -> Any:
        result = ipu.slicing_ops.sequence_slice(dst, src, [1, 2], [0, 1], [0, 3], zero_unused)
        gradients = tf.gradients(tf.reduce_sum(result * factors), [dst, src])
        kinds.extend(map(type, gradients))
        looked_up = tf.gradients(tf.reduce_sum(tf.gather(src, [1, 1, 2]) * factors[:3]), [src])
        return result, *gradients, looked_up

    with tf.Graph().as_default():
        fed = [v1.placeholder(tf.float32, (6, 4)) for _ in range(3)]
        results = ipu.ipu_compiler.compile(net, fed)
        with v1.Session() as session:
            result, by_dst, by_src, looked_up = session.run(results, dict(zip(fed, (dst, src, factors), strict=True)))
    assert not any(issubclass(kind, tf.IndexedSlices) for kind in kinds)
    expected, rows = np.zeros_like(dst) if zero_unused else dst.copy(), {0: 0, 3: 1, 4: 2}
    of_dst, of_src, of_gather = factors * (not zero_unused), np.zeros_like(src), np.zeros_like(src)
    for to, source in rows.items():
        expected[to], of_dst[to] = src[source], 0
        of_src[source] += factors[to]
    np.add.at(of_gather, [1, 1, 2], factors[:3])
    for found, value in ((result, expected), (by_dst, of_dst), (by_src, of_src), (looked_up[0], of_gather)):
        np.testing.assert_allclose(found, value, rtol=1e-6)


def test_a_variable_beside_its_update_has_the_value_before() -> None:
    def net() -> Any:
        with v1.variable_scope("before", use_resource=True):
            x = v1.get_variable("x", initializer=tf.constant([1.0, 2.0]))
        y = x * 3.0
        return y, x, v1.train.GradientDescentOptimizer(0.1).minimize(y)

    with tf.Graph().as_default():
        results = ipu.ipu_compiler.compile(net)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            for step in range(3):
                y, x = session.run(results)
                np.testing.assert_allclose(x, np.float32([1, 2]) - 0.3 * step, rtol=1e-5)
                np.testing.assert_allclose(y, 3 * x, rtol=1e-6)


@pytest.mark.parametrize("framework", [keras, tf_keras])
def test_a_host_embedding_beside_an_optimizer_that_was_built_first(framework: Any) -> None:
    with strategy_of().scope():
        w = tf.Variable(2.0)
        optimizer = framework.optimizers.SGD(0.1)
        optimizer.build([w])
        spec = ipu.embedding_ops.HostEmbeddingOptimizerSpec(0.1)
        table = ipu.embedding_ops.create_host_embedding(
            f"late_{framework.__name__}", [10, 4], tf.float32, optimizer_spec=spec, initializer=tf.ones_initializer()
        )

        @tf.function(jit_compile=True)
        def step(ids: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(table.lookup(ids)) * w
            variables = tape.watched_variables()
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
            return loss

        ids = tf.constant([1, 2])
        with table.register():
            losses = [float(tf.distribute.get_strategy().run(step, [ids])) for _ in range(2)]
        np.testing.assert_allclose(losses, [8 * 2.0, 8 * 0.8 * 1.2], rtol=1e-5)
