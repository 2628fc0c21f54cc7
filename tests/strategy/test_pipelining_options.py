"""Options of `pipelining_ops.pipeline`: replicas, concurrent stages, serialized batches, dtypes, tapes, storage."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from ipu import pipelining_ops
from ipu._internal.compiler.storage import STORAGE
from ipu.ipu_infeed_queue import IPUInfeedQueue
from ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipu.ipu_strategy import IPUStrategyV1
from ipu.pipelining_ops import OptimizerFunctionOutput, PipelineSchedule, pipeline
from tests.keras.helpers import Kit
from tests.strategy.helpers import numbers, replicas, unconverted
from tests.strategy.test_pipelining_ops import Regression

ROUNDING = 1e-5


def queues() -> tuple[IPUInfeedQueue, IPUOutfeedQueue]:
    infeed, outfeed = IPUInfeedQueue(numbers()), IPUOutfeedQueue()
    _ = infeed.initializer
    return infeed, outfeed


@pytest.mark.parametrize(("ipus", "stages", "rows"), [(2, 2, ()), (4, 2, (2,)), (4, 3, ()), (8, 3, (2,))])
def test_replicas_are_what_the_pipeline_leaves(
    strategy: IPUStrategyV1, ipus: int, stages: int, rows: tuple[int, ...]
) -> None:
    """Pipelines take a power of two IPUs, as IPUs are wired: three stages take four."""
    replicas(ipus)
    infeed, outfeed = queues()
    functions = [lambda x: x + 1] * stages
    program = unconverted(lambda: pipeline(functions, 2 * stages, infeed_queue=infeed, outfeed_queue=outfeed))
    strategy.run(program)
    received = outfeed.dequeue()[0].numpy()
    np.testing.assert_array_equal(received, np.reshape(np.arange(received.size), (2 * stages, *rows)) + stages)


@pytest.mark.parametrize("is_tensor", [False, True])
def test_too_few_ipus(strategy: IPUStrategyV1, is_tensor: bool) -> None:
    replicas(2)
    infeed, outfeed = queues()
    count = tf.constant(3.0)

    def program(number: Any) -> Any:
        given = whole(number) if is_tensor else 3
        return pipeline([lambda x: x] * 3, given, infeed_queue=infeed, outfeed_queue=outfeed)

    with pytest.raises(ValueError, match="auto_select_ipus = 4"):
        strategy.run(unconverted(program), args=[count])


@pytest.mark.parametrize("schedule", list(PipelineSchedule))
def test_training_with_concurrent_stages(strategy: IPUStrategyV1, kit: Kit, schedule: PipelineSchedule) -> None:
    """Two towers side by side, each with a weight, compared with a loop in TensorFlow."""
    generator = np.random.default_rng(1)
    x = generator.normal(size=(12, 4, 3)).astype(np.float32)
    start = [generator.normal(size=(3, 3)).astype(np.float32) for _ in range(4)]
    infeed, outfeed = IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(x)), IPUOutfeedQueue()
    _ = infeed.initializer
    with strategy.scope():
        weights = [tf.Variable(value) for value in start]
        optimizer = kit.keras.optimizers.SGD(0.05)
    first, left, right, last = (lambda x, w=w: tf.tanh(x @ w) for w in weights)

    def loss_of(left: Any, right: Any) -> Any:
        return tf.reduce_mean((left - 2 * last(right)) ** 2)

    def program() -> Any:
        return pipeline(
            [first, [left, right], loss_of],
            12,
            infeed_queue=infeed,
            outfeed_queue=outfeed,
            device_mapping=[0, [1, 2], 3],
            pipeline_schedule=schedule,
            optimizer_function=lambda loss: OptimizerFunctionOutput(optimizer, loss),
        )

    strategy.run(unconverted(program))
    plain = [tf.Variable(value) for value in start]
    losses, totals = [], [0.0] * 4
    for batch in x:
        with tf.GradientTape() as tape:
            hidden = tf.tanh(batch @ plain[0])
            a, b = tf.tanh(hidden @ plain[1]), tf.tanh(hidden @ plain[2])
            losses.append(tf.reduce_mean((a - 2 * tf.tanh(b @ plain[3])) ** 2))
        totals = [t + g for t, g in zip(totals, tape.gradient(losses[-1], plain), strict=True)]
    (received,) = outfeed.dequeue()
    np.testing.assert_allclose(received, losses, rtol=ROUNDING)
    for weight, value, total in zip(weights, start, totals, strict=True):
        np.testing.assert_allclose(weight, value - 0.05 * total, rtol=ROUNDING, atol=ROUNDING)
    rows = pipelining_ops.get_pipeline_schedule()
    both = {(row.slot, row.ipu) for row in rows if row.stage == 1 and row.kind == "forward"}
    assert {ipu for _, ipu in both} == {1, 2} and len({slot for slot, _ in both}) == 12


def test_serialized_batches(strategy: IPUStrategyV1, kit: Kit) -> None:
    """Serialization multiplies an update's micro-batches; stages run one at a time on one IPU."""
    with strategy.scope():
        problem = Regression(strategy, kit.keras.optimizers.SGD(0.1))
    program = lambda rate: problem.pipeline(rate, batch_serialization_iterations=3, outfeed_loss=True)  # noqa: E731
    strategy.run(unconverted(program), args=[tf.constant(0.0)])
    losses, weights = problem.expected(12, 1, 0.1)
    np.testing.assert_allclose(problem.outfeed.dequeue(), losses, rtol=1e-4)
    problem.assert_weights(weights)
    rows = pipelining_ops.get_pipeline_schedule()
    assert {row.ipu for row in rows} == {0}
    assert len({row.slot for row in rows}) == len(rows)


class Noting(tf.compat.v1.train.GradientDescentOptimizer):
    """Gradient descent that notes the dtypes of its gradients."""

    dtypes: list[Any]

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: Any = None) -> Any:
        pairs = list(grads_and_vars)
        self.dtypes = [gradient.dtype for gradient, _ in pairs]
        return super().apply_gradients([(tf.cast(g, tf.float32), v) for g, v in pairs], global_step, name)


@pytest.mark.parametrize("by_function", [False, True])
def test_gradients_are_summed_and_applied_in_the_dtype_asked_for(strategy: IPUStrategyV1, by_function: bool) -> None:
    optimizer = Noting(0.1)
    problem = Regression(strategy, optimizer)

    def dtype_of(variable: Any) -> Any:
        return tf.float16 if variable is problem.weights[0] else None

    asked = dtype_of if by_function else tf.float16
    program = lambda rate: problem.pipeline(rate, gradient_accumulation_dtype=asked)  # noqa: E731
    strategy.run(unconverted(program), args=[tf.constant(0.1)])
    assert optimizer.dtypes == [tf.float16, tf.float32 if by_function else tf.float16]
    totals: list[Any] = [np.float16(0), (np.float32 if by_function else np.float16)(0)]
    weights = [tf.constant(value) for value in problem.start]
    for x, y in zip(problem.x[:4], problem.y[:4], strict=True):
        with tf.GradientTape() as tape:
            tape.watch(weights)
            loss = tf.reduce_mean((tf.tanh(x @ weights[0]) @ weights[1] - y) ** 2)
        each = zip(totals, tape.gradient(loss, weights), strict=True)
        totals = [total + gradient.numpy().astype(total.dtype) for total, gradient in each]
    exact, _ = problem.expected(4, 1, 0.1)[1], None
    for weight, value, total, plain in zip(problem.weights, problem.start, totals, exact, strict=True):
        expected = value - np.float32(0.1) * total.astype(np.float32)
        # A gradient that differs in its last bit may be converted to another float16: one rounding at this size.
        slack = 0.1 * float(np.spacing(np.abs(total).max())) if total.dtype == np.float16 else 0.0
        np.testing.assert_allclose(weight, expected, rtol=ROUNDING, atol=ROUNDING + slack)
        assert total.dtype != np.float16 or np.abs(expected - plain).max() > 0


def test_it_is_an_operation(strategy: IPUStrategyV1) -> None:
    infeed, outfeed = queues()
    returned: list[Any] = []

    def program() -> None:
        returned.append(pipeline([lambda x: x, lambda x: x], 2, infeed_queue=infeed, outfeed_queue=outfeed))

    strategy.run(unconverted(program))
    assert all(isinstance(each, tf.Operation) for each in returned) and returned


def test_variables_in_inputs_are_warned_of(strategy: IPUStrategyV1, caplog: pytest.LogCaptureFixture) -> None:
    outfeed = IPUOutfeedQueue()
    with strategy.scope():
        factor = tf.Variable(3.0, name="factor")
    program = unconverted(
        lambda: pipeline([lambda x: x + 1, lambda x: 2 * x], 2, inputs=[factor], outfeed_queue=outfeed)
    )
    with caplog.at_level(logging.WARNING, logger="ipu"):
        strategy.run(program)
    assert "'factor:0' is in the inputs of a pipeline" in caplog.text
    np.testing.assert_array_equal(outfeed.dequeue(), [[8.0, 8.0]])


def test_a_tape_of_ones_own(strategy: IPUStrategyV1, kit: Kit) -> None:
    """The tape only watches the second weight, so only that weight is trained."""
    with strategy.scope():
        problem = Regression(strategy, kit.keras.optimizers.SGD(0.1))

    def second(rate: Any, hidden: Any, y: Any) -> Any:
        problem.tape = tf.GradientTape(watch_accessed_variables=False)  # type: ignore[attr-defined]
        with problem.tape:  # type: ignore[attr-defined]
            problem.tape.watch(problem.weights[1])  # type: ignore[attr-defined]
            return rate, tf.reduce_mean((hidden @ problem.weights[1] - y) ** 2)

    problem.second = second  # type: ignore[method-assign]
    problem.optimizer_function = lambda rate, loss: OptimizerFunctionOutput(  # type: ignore[method-assign]
        problem.optimizer, loss, tape=problem.tape
    )
    strategy.run(unconverted(problem.pipeline), args=[tf.constant(0.0)])
    np.testing.assert_array_equal(problem.weights[0], problem.start[0])
    np.testing.assert_allclose(problem.weights[1], problem.expected(4, 1, 0.1)[1][1], rtol=ROUNDING, atol=ROUNDING)


@pytest.mark.parametrize("mapping", [None, [0, 0]])
def test_variables_that_stages_share(strategy: IPUStrategyV1, kit: Kit, mapping: Any) -> None:
    infeed, outfeed = queues()
    with strategy.scope():
        weight = tf.Variable(0.5, name="shared")
        optimizer = kit.keras.optimizers.SGD(0.01)

    def program() -> Any:
        return pipeline(
            [lambda x: x * weight, lambda x: x * weight],
            4,
            infeed_queue=infeed,
            outfeed_queue=outfeed,
            device_mapping=mapping,
            optimizer_function=lambda loss: OptimizerFunctionOutput(optimizer, loss),
        )

    if mapping is None:
        with pytest.raises(ValueError, match=r"share a variable on one IPU.*device_mapping\[1\] = 0"):
            strategy.run(unconverted(program))
        return
    strategy.run(unconverted(program))
    np.testing.assert_allclose(weight, 0.5 - 0.01 * sum(range(4)), rtol=ROUNDING)  # d(x w²)/dw = 2 x w


@pytest.mark.sample(2)
@pytest.mark.parametrize("option", STORAGE)
def test_options_of_storage_change_no_numbers(strategy: IPUStrategyV1, kit: Kit, option: str) -> None:
    found = []
    for given in ({}, {option: True}):
        with strategy.scope():
            problem = Regression(strategy, kit.keras.optimizers.SGD(0.1, momentum=0.9))
        program = lambda rate, problem=problem, given=given: problem.pipeline(rate, **given)  # noqa: E731
        strategy.run(unconverted(program), args=[tf.constant(0.0)])
        found.append([weight.numpy() for weight in problem.weights])
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def whole(number: Any) -> tf.Tensor:
    """A number that the device computes; integers that are arguments are known when the program is compiled."""
    return tf.cast(number, tf.int32)


@pytest.mark.parametrize("count", [6, 0, -4])
def test_counts_that_are_tensors_are_checked_when_the_program_runs(strategy: IPUStrategyV1, count: int) -> None:
    """The check comes before the first micro-batch, so nothing is taken, written or enqueued."""
    problem = Regression(strategy)
    program = unconverted(lambda rate, count: problem.pipeline(rate, gradient_accumulation_count=whole(count)))
    rate = tf.constant(0.1)
    with pytest.raises(tf.errors.FailedPreconditionError, match=f"multiple of 4.*Received: {count}") as error:
        strategy.run(program, args=[rate, tf.constant(float(count))])
    assert isinstance(error.value, ValueError) and isinstance(error.value, RuntimeError)
    for weight, value in zip(problem.weights, problem.start, strict=True):
        np.testing.assert_array_equal(weight, value)
    assert len(problem.outfeed.dequeue()[0]) == 0
    for each in (4, 8):
        strategy.run(program, args=[rate, tf.constant(float(each))])
    assert len(problem.outfeed.dequeue()[0]) == 12
    strategy.run(
        unconverted(
            lambda rate, count: problem.pipeline(
                rate, gradient_accumulation_count=whole(count), pipeline_schedule=PipelineSchedule.Sequential
            )
        ),
        args=[rate, tf.constant(3.0)],
    )


def test_counts_of_replicas_are_checked(strategy: IPUStrategyV1) -> None:
    replicas(4)
    infeed, outfeed = queues()
    program = unconverted(
        lambda count: pipeline([lambda x: x, lambda x: x], whole(count), infeed_queue=infeed, outfeed_queue=outfeed)
    )
    with pytest.raises(tf.errors.FailedPreconditionError, match="multiple of 2"):
        strategy.run(program, args=[tf.constant(3.0)])
    strategy.run(program, args=[tf.constant(4.0)])
    np.testing.assert_array_equal(outfeed.dequeue(), [np.arange(8).reshape(4, 2)])
