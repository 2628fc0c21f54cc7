"""`pipelining_ops.pipeline`: its results, against loops in NumPy and TensorFlow, and its refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from engine.errors import ConfigurationError, StepCountError
from ipu import pipelining_ops
from ipu._internal.compiler.storage import STORAGE
from ipu.ipu_infeed_queue import IPUInfeedQueue
from ipu.ipu_outfeed_queue import IPUOutfeedMode, IPUOutfeedQueue
from ipu.ipu_strategy import IPUStrategyV1
from ipu.pipelining_ops import (
    OptimizerFunctionOutput,
    PipelineSchedule,
    PipelineStageOptions,
    RecomputationMode,
    get_pipeline_schedule,
    pipeline,
)
from tests.keras.helpers import Kit
from tests.strategy.helpers import numbers, replicas, unconverted

ROUNDING = 1e-5


def run(strategy: IPUStrategyV1, function: Callable[..., Any], *inputs: Any) -> None:
    strategy.run(unconverted(function), args=inputs)


class Regression:
    """Two stages with a weight each, their data, and their training as a loop in TensorFlow."""

    def __init__(self, strategy: IPUStrategyV1, optimizer: Any = None) -> None:
        generator = np.random.default_rng(0)
        self.x = generator.normal(size=(24, 4, 5)).astype(np.float32)
        self.y = self.x.sum(-1, keepdims=True)
        self.start = (np.full((5, 3), 0.1, np.float32), np.full((3, 1), 0.2, np.float32))
        dataset = tf.data.Dataset.from_tensor_slices((self.x, self.y)).repeat()
        self.infeed, self.outfeed = IPUInfeedQueue(dataset), IPUOutfeedQueue()
        _ = self.infeed.initializer
        with strategy.scope():
            self.weights = [tf.Variable(value) for value in self.start]
        self.optimizer = optimizer

    def first(self, rate: Any, x: Any, y: Any) -> Any:
        return rate, tf.tanh(x @ self.weights[0]), y

    def second(self, rate: Any, hidden: Any, y: Any) -> Any:
        return rate, tf.reduce_mean((hidden @ self.weights[1] - y) ** 2)

    def optimizer_function(self, rate: Any, loss: Any) -> OptimizerFunctionOutput:
        return OptimizerFunctionOutput(self.optimizer or tf.compat.v1.train.GradientDescentOptimizer(rate), loss)

    def pipeline(self, rate: Any, **arguments: Any) -> Any:
        given = {"gradient_accumulation_count": 4, "outfeed_queue": self.outfeed, **arguments}
        return pipeline(
            [self.first, self.second],
            inputs=[rate],
            infeed_queue=self.infeed,
            optimizer_function=self.optimizer_function,
            **given,
        )

    def expected(self, count: int, repeats: int, rate: float, reduction: str = "sum") -> tuple[list[float], Any]:
        """The losses and the weights after plain gradient descent."""
        weights = [tf.Variable(value) for value in self.start]
        losses = []
        for start in range(0, count * repeats, count):
            total: Any = [0.0, 0.0]
            for x, y in zip(self.x[start : start + count], self.y[start : start + count], strict=True):
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean((tf.tanh(x @ weights[0]) @ weights[1] - y) ** 2)
                losses.append(float(loss))
                total = [t + g for t, g in zip(total, tape.gradient(loss, weights), strict=True)]
            for weight, gradient in zip(weights, total, strict=True):
                weight.assign_sub(rate * gradient / (1 if reduction == "sum" else count))
        return losses, [weight.numpy() for weight in weights]

    def assert_weights(self, expected: Any) -> None:
        for weight, value in zip(self.weights, expected, strict=True):
            np.testing.assert_allclose(weight.numpy(), value, rtol=ROUNDING, atol=ROUNDING)


@pytest.mark.parametrize("reduction", ["sum", "MEAN", "running_mean"])
def test_training(strategy: IPUStrategyV1, reduction: str) -> None:
    problem = Regression(strategy)
    run(strategy, lambda rate: problem.pipeline(rate, repeat_count=2, reduction_method=reduction), tf.constant(0.1))
    losses, weights = problem.expected(4, 2, 0.1, reduction.lower())
    rates, received = problem.outfeed.dequeue()
    np.testing.assert_allclose(rates, [0.1] * 8)
    np.testing.assert_allclose(received, losses, rtol=1e-4)
    problem.assert_weights(weights)


@pytest.mark.parametrize("schedule", list(PipelineSchedule))
def test_all_schedules_give_the_same(strategy: IPUStrategyV1, schedule: PipelineSchedule) -> None:
    problem = Regression(strategy)
    run(strategy, lambda rate: problem.pipeline(rate, pipeline_schedule=schedule, outfeed_loss=True), tf.constant(0.1))
    losses, weights = problem.expected(4, 1, 0.1)
    np.testing.assert_allclose(problem.outfeed.dequeue(), losses, rtol=1e-4)
    problem.assert_weights(weights)


@pytest.mark.parametrize("scope", ["gradients", "outer/gradient_tape/inner"])
def test_scopes_named_like_those_of_gradients(strategy: IPUStrategyV1, scope: str) -> None:
    """Stages in scopes with these names are still forward passes."""
    problem = Regression(strategy)

    def step(rate: tf.Tensor) -> Any:
        with tf.name_scope(scope):
            return problem.pipeline(rate)

    run(strategy, step, tf.constant(0.1))
    problem.assert_weights(problem.expected(4, 1, 0.1)[1])


def test_keras_optimizers_and_a_second_run(strategy: IPUStrategyV1, kit: Kit) -> None:
    with strategy.scope():
        problem = Regression(strategy, kit.keras.optimizers.SGD(0.1))
    function = unconverted(lambda rate: problem.pipeline(rate))
    for _ in range(2):
        strategy.run(function, args=[tf.constant(0.0)])
    problem.assert_weights(problem.expected(4, 2, 0.1)[1])


def test_a_count_that_is_an_argument(strategy: IPUStrategyV1) -> None:
    """Each value has a separate program and schedule, and is checked when the function is called with it."""
    problem = Regression(strategy)
    function = unconverted(lambda rate, count: problem.pipeline(rate, gradient_accumulation_count=count))
    strategy.run(function, args=[tf.constant(0.1), tf.constant(8)])
    problem.assert_weights(problem.expected(8, 1, 0.1)[1])
    rows = get_pipeline_schedule()
    assert {row.micro_batch for row in rows} == {*range(8), None}
    for illegal in (6, 0, -4):
        with pytest.raises((StepCountError, ConfigurationError), match=f"gradient_accumulation_count.*{illegal}"):
            strategy.run(function, args=[tf.constant(0.1), tf.constant(illegal)])
    problem.assert_weights(problem.expected(8, 1, 0.1)[1])
    strategy.run(function, args=[tf.constant(0.1), tf.constant(4)])
    assert {row.micro_batch for row in get_pipeline_schedule()} == {*range(4), None}


def test_a_count_that_the_device_computes(strategy: IPUStrategyV1) -> None:
    """Micro-batches run one at a time, without a schedule."""
    problem = Regression(strategy)
    run(
        strategy,
        lambda rate, count: problem.pipeline(rate, gradient_accumulation_count=2 * count),
        tf.constant(0.1),
        tf.constant(4),
    )
    problem.assert_weights(problem.expected(8, 1, 0.1)[1])


def test_mask_and_accumulated_outfeed(strategy: IPUStrategyV1) -> None:
    problem = Regression(strategy)
    run(
        strategy,
        lambda rate: problem.pipeline(
            rate,
            repeat_count=2,
            outfeed_mask=[True, False],
            accumulate_outfeed=True,
            accumulate_outfeed_dtype=lambda spec: {"output_1": tf.float32}[spec.name],
        ),
        tf.constant(0.1),
    )
    (sums,) = problem.outfeed.dequeue()
    losses, _ = problem.expected(4, 2, 0.1)
    np.testing.assert_allclose(sums, np.reshape(losses, (2, 4)).sum(1), rtol=1e-4)


def test_inference_with_concurrent_stages_and_named_elements(strategy: IPUStrategyV1) -> None:
    dataset = numbers(shape=(2,)).map(lambda value: {"a": value, "b": 10 * value})
    infeed, outfeed = IPUInfeedQueue(dataset), IPUOutfeedQueue()
    _ = infeed.initializer

    def program(offset: Any) -> Any:
        return pipeline(
            [
                lambda offset, b, a: (a + offset, b),
                [lambda a, b: a * b, lambda a, b: (a - b, a + b)],
                lambda product, difference, total: {"sum": product + difference + total, "total": total},
            ],
            gradient_accumulation_count=6,
            inputs=[offset],
            infeed_queue=infeed,
            outfeed_queue=outfeed,
            device_mapping=[0, [1, 2], 0],
        )

    run(strategy, program, tf.constant(1.0))
    result = outfeed.dequeue()
    a, b = np.arange(6) + 1.0, 10.0 * np.arange(6)
    np.testing.assert_allclose(result["sum"], np.repeat((a * b + 2 * a)[:, None], 2, axis=1))
    np.testing.assert_allclose(result["total"][:, 0], a + b)


def test_two_replicas_sum_their_gradients(strategy: IPUStrategyV1, kit: Kit) -> None:
    replicas(4)
    with strategy.scope():
        problem = Regression(strategy, kit.keras.optimizers.SGD(0.1))
    run(strategy, lambda rate: problem.pipeline(rate, outfeed_loss=True), tf.constant(0.0))
    losses, weights = problem.expected(8, 1, 0.1)
    np.testing.assert_allclose(np.reshape(problem.outfeed.dequeue(), -1), losses, rtol=1e-4)
    problem.assert_weights(weights)


def test_checkpoints_change_nothing() -> None:
    tensors = {"a": tf.constant(1.0), "b": (tf.constant([2]), tf.constant(3.0))}
    kept = pipelining_ops.recomputation_checkpoint(tensors)
    tf.nest.assert_same_structure(kept, tensors)
    assert all(tf.nest.flatten(tf.nest.map_structure(lambda x, y: bool(tf.reduce_all(x == y)), kept, tensors)))


def identity(*values: Any) -> Any:
    return values


REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"gradient_accumulation_count": None}, ValueError, "to be specified"),
    ({"gradient_accumulation_count": -2}, ValueError, "Received: -2. Nearest legal value: 1"),
    ({"gradient_accumulation_count": 2**31}, ValueError, "2147483647"),
    ({"gradient_accumulation_count": 2.0}, TypeError, "an integer"),
    ({"gradient_accumulation_count": 3}, ValueError, "multiple of 2"),
    ({"optimizer_function": identity, "gradient_accumulation_count": 6}, ValueError, "multiple of 4"),
    ({"optimizer_function": identity, "reduction_method": None}, ValueError, "Cannot parse None"),
    ({"optimizer_function": identity, "reduction_method": "max"}, ValueError, "Cannot parse 'max'"),
    (
        {"optimizer_function": identity, "reduction_method": "mean", "batch_serialization_iterations": 2},
        ValueError,
        "SUM with batch_serialization_iterations",
    ),
    ({"continuous_weight_updates": True}, NotImplementedError, "continuous_weight_updates"),
    (
        {"batch_serialization_iterations": 2, "pipeline_schedule": PipelineSchedule.Grouped},
        NotImplementedError,
        "Sequential with batch_serialization",
    ),
    ({"batch_serialization_iterations": 2, "device_mapping": [0, 1]}, NotImplementedError, "one IPU with"),
    ({"computational_stages": identity}, TypeError, "computational_stages to be a list"),
    ({"computational_stages": [identity]}, ValueError, "at least two"),
    ({"computational_stages": [identity, 3]}, TypeError, "stage 1 to be a function"),
    ({"device_mapping": 3}, TypeError, "device_mapping to be a list"),
    ({"device_mapping": [0]}, ValueError, "Each stage must be mapped to an IPU"),
    ({"computational_stages": [identity, [identity] * 2], "device_mapping": [0, 1]}, ValueError, "2. Received: 1"),
    (
        {
            "optimizer_function": identity,
            "device_mapping": [0, 0],
            "pipeline_schedule": PipelineSchedule.Interleaved,
        },
        NotImplementedError,
        "different IPUs",
    ),
    ({"infeed_queue": 1}, TypeError, "IPUInfeedQueue"),
    ({"outfeed_queue": 1}, TypeError, "IPUOutfeedQueue"),
    ({"forward_propagation_stages_poplar_options": 1}, TypeError, "list or tuple"),
    ({"forward_propagation_stages_poplar_options": [1, 2]}, TypeError, "PipelineStageOptions"),
    ({"backward_propagation_stages_poplar_options": [PipelineStageOptions()]}, ValueError, "Received: 1"),
    ({"weight_update_poplar_options": 1}, TypeError, "PipelineStageOptions"),
    ({"pipeline_schedule": "Grouped"}, TypeError, "pipeline_schedule"),
    ({"recomputation_mode": "Auto"}, TypeError, "RecomputationMode"),
    (
        {
            "pipeline_schedule": PipelineSchedule.Sequential,
            "recomputation_mode": RecomputationMode.RecomputeThenBackpropagate,
        },
        NotImplementedError,
        "Sequential",
    ),
    ({"outfeed_mask": [True]}, ValueError, "only with an optimizer_function"),
    ({"outfeed_loss": True}, ValueError, "only with an optimizer_function"),
    ({"optimizer_function": identity, "outfeed_loss": True}, ValueError, "outfeed_queue with outfeed_loss"),
    ({"optimizer_function": identity, "outfeed_loss": True, "outfeed_mask": [True]}, ValueError, "Received: both"),
    ({"accumulate_outfeed": True}, ValueError, "outfeed_queue with accumulate_outfeed"),
    ({"repeat_count": 0}, ValueError, "repeat_count"),
    (
        {"replicated_optimizer_state_sharding": True, "offload_weight_update_variables": False},
        ValueError,
        "only with offload_weight_update_variables",
    ),
    ({"gradient_accumulation_dtype": tf.int32}, ValueError, "tf.float32"),
    ({"accumulate_outfeed_dtype": "numbers"}, TypeError, "a dtype of numbers"),
    ({"accumulate_outfeed_dtype": tf.string}, TypeError, "a dtype of numbers"),
    *(({name: "yes"}, ValueError, f"{name} to be True, False or None") for name in STORAGE),
]


@pytest.mark.parametrize(("arguments", "kind", "message"), REFUSED, ids=[case[2][:24] for case in REFUSED])
def test_arguments_refused(arguments: dict[str, Any], kind: type[Exception], message: str) -> None:
    given = {"computational_stages": [identity, identity], "gradient_accumulation_count": 4, **arguments}
    with pytest.raises(kind) as error:
        pipeline(**given)
    assert message in str(error.value)


def test_an_outfeed_of_the_last_element_cannot_accumulate() -> None:
    queue = IPUOutfeedQueue(outfeed_mode=IPUOutfeedMode.LAST)
    with pytest.raises(ValueError, match="IPUOutfeedMode.ALL"):
        pipeline([identity, identity], 2, outfeed_queue=queue, accumulate_outfeed=True)


def test_refused_while_it_is_traced(strategy: IPUStrategyV1) -> None:
    problem = Regression(strategy)
    rate = tf.constant(0.1)
    for arguments, kind, message in (
        ({"outfeed_mask": [True]}, ValueError, "each of 2 outputs"),
        ({"outfeed_queue": None}, ValueError, "The last computational stage has tensor outputs"),
    ):
        with pytest.raises(kind, match=message):
            run(strategy, lambda rate, arguments=arguments: problem.pipeline(rate, **arguments), rate)

    def captures(rate: Any) -> Any:
        outer = 2 * rate
        return pipeline([lambda x: x, lambda x: x * outer], 2, inputs=[rate], outfeed_queue=IPUOutfeedQueue())

    with pytest.raises(ValueError, match="Trying to capture the tensor"):
        run(strategy, captures, rate)
    problem.optimizer_function = lambda rate, loss: loss  # type: ignore[method-assign]
    with pytest.raises(TypeError, match="return an OptimizerFunctionOutput"):
        run(strategy, problem.pipeline, rate)
    problem.optimizer_function = lambda rate, loss: OptimizerFunctionOutput(  # type: ignore[method-assign]
        tf.compat.v1.train.GradientDescentOptimizer(0.1), rate
    )
    with pytest.raises(RuntimeError, match="No variables to optimize"):
        run(strategy, problem.pipeline, rate)


def test_outside_a_function_of_the_device() -> None:
    with pytest.raises(RuntimeError, match="a pipeline"):
        pipeline([identity, identity], 2)


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"opt": 1}, TypeError, "opt to be an optimizer"),
        ({"tape": tf.GradientTape()}, ValueError, "only with a Keras optimizer"),
        ({"loss": 1.0}, TypeError, "loss to be a tensor"),
        ({"variables": []}, ValueError, "only with a Keras optimizer"),
    ],
)
def test_optimizer_outputs_refused(arguments: dict[str, Any], kind: type[Exception], message: str) -> None:
    given = {"opt": tf.compat.v1.train.GradientDescentOptimizer(0.1), "loss": tf.constant(1.0), **arguments}
    with pytest.raises(kind, match=message):
        OptimizerFunctionOutput(**given)


def test_gradient_arguments_are_for_tensorflow_optimizers(kit: Kit) -> None:
    optimizer, loss = kit.keras.optimizers.SGD(0.1), tf.constant(1.0)
    for arguments in ({"compute_gradients_kwargs": {"a": 1}}, {"compute_gradients_args": (1,)}):
        with pytest.raises(ValueError, match="only with a TensorFlow 1 optimizer"):
            OptimizerFunctionOutput(optimizer, loss, **arguments)
    with pytest.raises(ValueError, match="one of variables and tape. Received: both"):
        OptimizerFunctionOutput(optimizer, loss, variables=[], tape=tf.GradientTape())
    with pytest.raises(TypeError, match="tape to be a tf.GradientTape"):
        OptimizerFunctionOutput(optimizer, loss, tape=1)
