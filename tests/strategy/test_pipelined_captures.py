"""Gradients that stages of a pipeline capture: their values on an outfeed, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from ipu.eager.backprop import GradientCaptureContext, GradientCaptureTape
from ipu.ipu_infeed_queue import IPUInfeedQueue
from ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipu.ipu_strategy import IPUStrategyV1
from ipu.ops.grad_util_ops import capture_upstream_gradients
from ipu.ops.pipelining_ops import OptimizerFunctionOutput, pipeline
from tests.strategy.helpers import unconverted

COUNT, UPDATES, RATE = 4, 2, 0.1
X = np.random.default_rng(0).normal(size=(COUNT * UPDATES, 3, 5)).astype(np.float32)
FIRST, SECOND = np.full((5, 2), 0.1, np.float32), np.full((2, 1), 0.2, np.float32)


def expected(divided: bool) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    """The gradients by both tensors on TensorFlow's own tape, for each update, and the weights afterwards."""
    first, second = tf.Variable(FIRST), tf.Variable(SECOND)
    rows: dict[str, list[Any]] = {"hidden": [], "out": []}
    for update in range(UPDATES):
        sums: Any = None
        for x in X[update * COUNT : (update + 1) * COUNT]:
            with tf.GradientTape() as tape:
                hidden = tf.tanh(x @ first)
                out = hidden @ second
                loss = tf.reduce_mean(tf.square(out - 1.0))
            gradients = tape.gradient(loss, [hidden, out, first, second])
            sums = gradients if sums is None else [a + b for a, b in zip(sums, gradients, strict=True)]
        sums = [each / (COUNT if divided else 1) for each in sums]
        rows["hidden"].append(sums[0])
        rows["out"].append(sums[1])
        first.assign_sub(RATE * sums[2])
        second.assign_sub(RATE * sums[3])
    return {tag: np.stack(each) for tag, each in rows.items()}, [first.numpy(), second.numpy()]


def run(strategy: IPUStrategyV1, given: Any, count: Any = COUNT, optimizer: Any = None, **arguments: Any) -> list[Any]:
    """Trains in two stages that capture; returns the weights. `given` are arguments of OptimizerFunctionOutput."""
    with strategy.scope():
        first, second = tf.Variable(FIRST), tf.Variable(SECOND)
    infeed, losses = IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(X).repeat()), IPUOutfeedQueue()
    _ = infeed.initializer

    def stage1(*inputs: Any) -> Any:
        return capture_upstream_gradients(tf.tanh(inputs[-1] @ first), "hidden")

    def stage2(hidden: Any) -> Any:
        return tf.reduce_mean(tf.square(capture_upstream_gradients(hidden @ second, "out") - 1.0))

    optimizer = tf.compat.v1.train.GradientDescentOptimizer(RATE) if optimizer is None else optimizer

    def output(loss: Any) -> OptimizerFunctionOutput:
        return OptimizerFunctionOutput(optimizer, loss, **given)

    def step(number: Any) -> Any:
        return pipeline(
            *([stage1, stage2], number if count is None else count),
            repeat_count=UPDATES,
            infeed_queue=infeed,
            outfeed_queue=losses,
            optimizer_function=output,
            outfeed_loss=True,
            **arguments,
        )

    strategy.run(unconverted(step), args=[tf.constant(COUNT)])
    return [first.numpy(), second.numpy()]


@pytest.mark.parametrize("reduction", ["sum", "mean", "running_mean"])
@pytest.mark.parametrize("count", [COUNT, None])
def test_captured_gradients(strategy: IPUStrategyV1, reduction: str, count: int | None) -> None:
    queue = IPUOutfeedQueue()
    given = {"gradient_capture_context": GradientCaptureContext(), "captured_gradient_outfeed": queue}
    weights = run(strategy, given, count, reduction_method=reduction)
    gradients, after = expected(reduction != "sum")
    received = queue.dequeue()
    assert received.keys() == gradients.keys()
    for tag, value in gradients.items():
        np.testing.assert_allclose(received[tag], value, rtol=1e-5, atol=1e-6)
    for one, other in zip(weights, after, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("edge", "factor"), [(0.001, 4), (100.0, 64)])
def test_loss_scaling_by_captured_gradients(strategy: IPUStrategyV1, kit: Any, edge: float, factor: int) -> None:
    """Two updates halve the factor of 16, as all captured gradients are above the edge, or double it."""
    for count in (COUNT, None):
        with strategy.scope():
            optimizer = kit.keras.ipu.optimizers.ALSOptimizer(
                kit.keras.optimizers.SGD(RATE),
                initial_loss_scaling_factor=16,
                update_frequency=1,
                captured_grads_only=True,
                histogram_bin_edge=edge,
            )
        given = {"gradient_capture_context": GradientCaptureContext()}
        run(strategy, given, count, optimizer, reduction_method="mean")
        assert optimizer.loss_scaling_factor.numpy() == factor


def test_without_a_context_captures_are_refused(strategy: IPUStrategyV1) -> None:
    with pytest.raises(RuntimeError, match="GradientCaptureContext"):
        run(strategy, {})


def test_what_is_refused(strategy: IPUStrategyV1) -> None:
    with pytest.raises(NotImplementedError, match="gradient_accumulation_for_captured_grads=True"):
        run(strategy, {}, gradient_accumulation_for_captured_grads=False)
    optimizer, loss, queue = tf.compat.v1.train.GradientDescentOptimizer(0.1), tf.constant(1.0), IPUOutfeedQueue()
    with pytest.raises(ValueError, match="gradients to be captured for captured_gradient_outfeed"):
        OptimizerFunctionOutput(optimizer, loss, captured_gradient_outfeed=queue)
    with pytest.raises(TypeError, match="gradient_capture_context to be an GradientCaptureContext"):
        OptimizerFunctionOutput(optimizer, loss, gradient_capture_context=1)  # type: ignore[arg-type]


def test_a_tape_that_captures(strategy: IPUStrategyV1, kit: Any) -> None:
    queue, optimizer = IPUOutfeedQueue(), kit.keras.optimizers.SGD(RATE)
    with strategy.scope():
        weight = tf.Variable(FIRST)
    infeed, losses = IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(X).repeat()), IPUOutfeedQueue()
    _ = infeed.initializer
    tapes: list[GradientCaptureTape] = []

    def stage1(x: Any) -> Any:
        tapes.append(GradientCaptureTape())
        tapes[-1].__enter__()
        return capture_upstream_gradients(x @ weight, "product")

    def output(loss: Any) -> OptimizerFunctionOutput:
        tapes[-1].__exit__(None, None, None)
        return OptimizerFunctionOutput(optimizer, loss, tape=tapes[-1], captured_gradient_outfeed=queue)

    def step() -> Any:
        stages = [stage1, lambda y: tf.reduce_sum(y * y)]
        return pipeline(stages, COUNT, infeed_queue=infeed, outfeed_queue=losses, optimizer_function=output)

    strategy.run(unconverted(step))
    np.testing.assert_allclose(queue.dequeue()["product"], [(2 * X[:COUNT] @ FIRST).sum(0)], rtol=1e-5, atol=1e-6)
