"""`pipelining_ops.pipeline` executes in the order of its schedule, and gives the same numbers in any order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from ipu import pipelining_ops
from ipu.config import IPUConfig
from ipu.ipu_infeed_queue import IPUInfeedQueue
from ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipu.ipu_strategy import IPUStrategyV1
from ipu.ops import internal_ops
from ipu.pipelining_ops import OptimizerFunctionOutput, PipelineSchedule, RecomputationMode, pipeline
from tests.exploring import sample
from tests.keras.helpers import Kit
from tests.strategy.helpers import numbers, replicas, unconverted

STAGES, COUNT, REPEATS, ROWS, WIDTH = 4, 8, 2, 3, 5
SCHEDULES = list(PipelineSchedule)


class Chain:
    """Four stages with a weight each, a count of batches in the second, and their data."""

    def __init__(self, strategy: IPUStrategyV1, optimizer: Any) -> None:
        generator = np.random.default_rng(0)
        self.x = generator.normal(size=(2 * COUNT * REPEATS, ROWS, WIDTH)).astype(np.float32)
        self.start = generator.normal(size=(STAGES, WIDTH, WIDTH), scale=0.5).astype(np.float32)
        self.infeed = IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(self.x).repeat())
        self.outfeed = IPUOutfeedQueue()
        _ = self.infeed.initializer
        with strategy.scope():
            self.weights = [tf.Variable(value) for value in self.start]
            self.seen = tf.Variable(0, trainable=False)
        self.optimizer = optimizer

    def stage(self, number: int) -> Any:
        def run(x: Any) -> Any:
            if number == 1:
                self.seen.assign_add(1)
            y = tf.tanh(x @ self.weights[number])
            return tf.reduce_sum(y**2) if number == STAGES - 1 else y

        return run

    def pipeline(self, **arguments: Any) -> Any:
        return pipeline(
            [self.stage(number) for number in range(STAGES)],
            gradient_accumulation_count=COUNT,
            repeat_count=REPEATS,
            infeed_queue=self.infeed,
            outfeed_queue=self.outfeed,
            optimizer_function=lambda loss: OptimizerFunctionOutput(self.optimizer, loss),
            **arguments,
        )

    def expected(self, replicas: int, optimizer: Any) -> tuple[np.ndarray, list[np.ndarray]]:
        """The losses and the weights of the loop without stages, in TensorFlow."""
        weights = [tf.Variable(value) for value in self.start]
        losses, count = [], COUNT * replicas
        for batch in range(REPEATS):
            totals: Any = [0.0] * STAGES
            for x in self.x[batch * count : (batch + 1) * count]:
                with tf.GradientTape() as tape:
                    y = tf.constant(x)
                    for weight in weights:
                        y = tf.tanh(y @ weight)
                    losses.append(tf.reduce_sum(y**2))
                totals = [t + g for t, g in zip(totals, tape.gradient(losses[-1], weights), strict=True)]
            optimizer.apply_gradients(zip(totals, weights, strict=True))
        return np.array(losses), [weight.numpy() for weight in weights]


@pytest.mark.sample(1)
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_an_optimizer_with_states(strategy: IPUStrategyV1, kit: Kit, schedule: PipelineSchedule, count: int) -> None:
    replicas(count * STAGES)
    with strategy.scope():
        chain = Chain(strategy, kit.keras.optimizers.Adam(0.01))
    strategy.run(unconverted(lambda: chain.pipeline(pipeline_schedule=schedule)))
    rows = pipelining_ops.get_pipeline_schedule()
    kinds = {(row.kind, row.stage, row.micro_batch) for row in rows}
    assert len(kinds) == 2 * STAGES * COUNT + STAGES
    both = [{row.kind for row in rows if row.slot == slot} for slot in range(rows[-1].slot)]
    assert ({"forward", "backward"} in both) is (schedule is PipelineSchedule.Interleaved)
    overlapping = max(sum(row.slot == slot for row in rows) for slot in range(rows[-1].slot))
    assert (overlapping == 1) is (schedule is PipelineSchedule.Sequential)
    losses, weights = chain.expected(count, kit.keras.optimizers.Adam(0.01))
    np.testing.assert_allclose(np.ravel(chain.outfeed.dequeue()), losses, rtol=1e-4)
    for weight, value in zip(chain.weights, weights, strict=True):
        np.testing.assert_allclose(weight.numpy(), value, rtol=1e-4, atol=1e-5)
    assert int(chain.optimizer.iterations.numpy()) == REPEATS
    assert int(chain.seen.numpy()) == COUNT * REPEATS


def test_all_schedules_and_recomputations_give_the_same_bits(strategy: IPUStrategyV1, kit: Kit) -> None:
    found = []
    ways: list[tuple[PipelineSchedule, bool, RecomputationMode | None]] = [
        *((schedule, False, None) for schedule in SCHEDULES),
        (PipelineSchedule.Grouped, True, RecomputationMode.RecomputeAndBackpropagateInterleaved),
        (PipelineSchedule.Interleaved, True, None),
        (PipelineSchedule.Grouped, True, None),
    ]
    for schedule, allowed, mode in sample(ways, 4):
        config = IPUConfig()
        config.auto_select_ipus = STAGES
        config.allow_recompute = allowed
        config.configure_ipu_system()
        with strategy.scope():
            chain = Chain(strategy, kit.keras.optimizers.SGD(0.05, momentum=0.9))
        arguments = {"pipeline_schedule": schedule, "recomputation_mode": mode}
        strategy.run(unconverted(lambda chain=chain, given=arguments: chain.pipeline(**given)))
        again = {row.stage for row in pipelining_ops.get_pipeline_schedule() if row.kind == "recompute"}
        assert again == (set(range(STAGES - 1)) if allowed and mode is None else set())
        found.append([np.ravel(chain.outfeed.dequeue()), *(weight.numpy() for weight in chain.weights)])
    for other in found[1:]:
        for one, another in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(one, another)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_inference_in_order(strategy: IPUStrategyV1, schedule: PipelineSchedule) -> None:
    infeed, outfeed = IPUInfeedQueue(numbers(shape=(2,))), IPUOutfeedQueue()
    _ = infeed.initializer

    def program(offset: Any) -> Any:
        return pipeline(
            [lambda offset, x: x + offset, lambda x: 2 * x, lambda x: x - 1],
            gradient_accumulation_count=6,
            repeat_count=2,
            inputs=[offset],
            infeed_queue=infeed,
            outfeed_queue=outfeed,
            pipeline_schedule=schedule,
        )

    strategy.run(unconverted(program), args=[tf.constant(10.0)])
    np.testing.assert_array_equal(outfeed.dequeue()[0][:, 0], 2 * (np.arange(12) + 10) - 1)
    rows = pipelining_ops.get_pipeline_schedule()
    assert rows[-1].slot + 1 == (18 if schedule is PipelineSchedule.Sequential else 8)


@pytest.mark.parametrize("count", [1, 2])
def test_accumulated_outputs_of_inference(strategy: IPUStrategyV1, count: int) -> None:
    replicas(2 * count)
    infeed, outfeed = IPUInfeedQueue(numbers()), IPUOutfeedQueue()
    _ = infeed.initializer

    def program() -> Any:
        return pipeline(
            [lambda x: x + 1, lambda x: (x, tf.cast(x, tf.int32))],
            gradient_accumulation_count=4,
            repeat_count=3,
            infeed_queue=infeed,
            outfeed_queue=outfeed,
            accumulate_outfeed=True,
            accumulate_outfeed_dtype=lambda tensor: tf.float16 if tensor.dtype.is_floating else None,
        )

    strategy.run(unconverted(program))
    floats, integers = outfeed.dequeue()
    expected = np.arange(12 * count).reshape(3, 4, count).sum(1) + 4
    assert floats.dtype == tf.float16
    np.testing.assert_array_equal(np.reshape(floats, (3, count)), expected)
    np.testing.assert_array_equal(np.reshape(integers, (3, count)), expected)


def test_what_a_stage_prints_is_in_order(strategy: IPUStrategyV1, capfd: pytest.CaptureFixture[str]) -> None:
    infeed, outfeed = IPUInfeedQueue(numbers()), IPUOutfeedQueue()
    _ = infeed.initializer

    def program() -> Any:
        start = internal_ops.print_tensor(tf.constant(-1.0), "start")
        done = pipeline(
            [
                lambda start, x: (start, internal_ops.print_tensor(x, "a")),
                lambda start, x: internal_ops.print_tensor(x, "b"),
            ],
            gradient_accumulation_count=4,
            inputs=[start],
            infeed_queue=infeed,
            outfeed_queue=outfeed,
        )
        with tf.control_dependencies([done]):
            return internal_ops.print_tensor(tf.constant(-2.0), "end")

    strategy.run(unconverted(program))
    np.testing.assert_array_equal(outfeed.dequeue(), [np.arange(4)])
    lines = [line.split("/")[-1] for line in capfd.readouterr().err.splitlines() if "print_tensor" in line]
    for stage in "ab":
        assert [line for line in lines if line[0] == stage] == [f"{stage}: {number}.0" for number in range(4)]
    assert len(lines) == 10


def test_a_data_set_that_ends_leaves_variables_alone(strategy: IPUStrategyV1, kit: Kit) -> None:
    with strategy.scope():
        chain = Chain(strategy, kit.keras.optimizers.SGD(0.05))
    chain.infeed = IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(chain.x[: COUNT * REPEATS - 1]))
    _ = chain.infeed.initializer
    with pytest.raises(tf.errors.OutOfRangeError):
        strategy.run(unconverted(chain.pipeline))
    for weight, value in zip(chain.weights, chain.start, strict=True):
        np.testing.assert_array_equal(weight.numpy(), value)


def test_two_pipelines_of_a_function(strategy: IPUStrategyV1) -> None:
    infeed, outfeeds = IPUInfeedQueue(numbers()), [IPUOutfeedQueue(), IPUOutfeedQueue()]
    _ = infeed.initializer

    def program() -> None:
        for outfeed, factor in zip(outfeeds, (2.0, 3.0), strict=True):
            stages = [lambda x: x, lambda x, factor=factor: factor * x]
            pipeline(stages, 4, infeed_queue=infeed, outfeed_queue=outfeed)

    strategy.run(unconverted(program))
    np.testing.assert_array_equal(outfeeds[0].dequeue(), [2 * np.arange(4)])
    np.testing.assert_array_equal(outfeeds[1].dequeue(), [3 * np.arange(4, 8)])
    assert len(pipelining_ops.get_pipeline_schedule(1)) == 8
    with pytest.raises(RuntimeError, match="2, of 2 pipelines"):
        pipelining_ops.get_pipeline_schedule(2)
