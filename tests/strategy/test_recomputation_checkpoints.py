"""`recomputation_checkpoint`: stored and recomputed values, and numbers that stay the same."""

from __future__ import annotations

from functools import cache
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from engine.profile.step_costs import IpuEstimate
from ipu._internal.compiler.calling import program_of_function
from ipu._internal.compiler.traced_pipelines import latest
from ipu._internal.profiling.estimates import estimate_of
from ipu.config import IPUConfig
from ipu.ipu_infeed_queue import IPUInfeedQueue
from ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipu.ipu_strategy import IPUStrategy
from ipu.ops.pipelining_ops import (
    OptimizerFunctionOutput,
    PipelineSchedule,
    RecomputationMode,
    pipeline,
    recomputation_checkpoint,
)

BATCH, WIDTH, LAYERS = 256, 32, 6
ACTIVATION = BATCH * WIDTH * 4
THEN, INTERLEAVED = RecomputationMode.RecomputeThenBackpropagate, RecomputationMode.RecomputeAndBackpropagateInterleaved


@cache
def trained(
    every: int, mode: RecomputationMode | None, schedule: str = "Grouped"
) -> tuple[IpuEstimate, Any, list[Any]]:
    """IPU 0 in the cost report, its stage in the pipeline's report, and the weights after an update.

    The stage has six layers, and a checkpoint after every `every` layers.
    """
    config = IPUConfig()
    config.auto_select_ipus, config.allow_recompute = 2, True
    config.configure_ipu_system()
    strategy = IPUStrategy()
    with strategy.scope():
        rng = np.random.default_rng(0)
        values = [0.2 * rng.normal(size=(WIDTH, WIDTH)).astype(np.float32) for _ in range(LAYERS + 1)]
        weights = [tf.Variable(value) for value in values]
        optimizer = keras.optimizers.SGD(0.1)
        batch = rng.normal(size=(BATCH, WIDTH)).astype(np.float32)
        infeed = IPUInfeedQueue(tf.data.Dataset.from_tensors((batch, batch)).repeat())
        outfeed = IPUOutfeedQueue()

        def first(x: Any, y: Any) -> Any:
            for number, weight in enumerate(weights[:-1]):
                x = tf.tanh(tf.matmul(x, weight))
                if every and number % every == every - 1 and number < LAYERS - 1:
                    x = recomputation_checkpoint({"x": x}, name="kept")["x"]
            return x, y

        def second(x: Any, y: Any) -> Any:
            return tf.reduce_mean(tf.square(tf.matmul(x, weights[-1]) - y))

        @tf.function(jit_compile=True, autograph=False)
        def step() -> None:
            pipeline(
                [first, second],
                4,
                infeed_queue=infeed,
                outfeed_queue=outfeed,
                optimizer_function=lambda loss: OptimizerFunctionOutput(optimizer, loss),
                recomputation_mode=mode,
                pipeline_schedule=PipelineSchedule[schedule],
            )

        _ = infeed.initializer
        strategy.run(step)
    found = estimate_of(program_of_function(step)).pipeline
    assert found is not None
    return found.ipus[0], latest[0].report.stages[0], [weight.numpy() for weight in weights]


def most_activations(ipu: IpuEstimate) -> int:
    """The most activations of one micro-batch that are on the tiles at once, without those that wait in the stash."""
    own = [t for t in ipu.estimate.liveness if t.bytes == ACTIVATION and not t.name.startswith("stash of")]
    return max(sum(t.first <= at <= t.last for t in own) for at in range(len(ipu.estimate.costs)))


@pytest.mark.parametrize("schedule", ["Grouped", "Sequential"])
def test_backward_parts_recompute_from_checkpoints_on(schedule: str) -> None:
    mode = INTERLEAVED if schedule == "Grouped" else None
    (plain, before, weights), (kept, after, same) = trained(0, mode, schedule), trained(2, mode, schedule)
    for one, other in zip(weights, same, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-7)
    # Each micro-batch in the pipeline has two more waiting activations.
    depth = before.micro_batches if schedule == "Grouped" else 1
    assert kept.stash_bytes - plain.stash_bytes == 2 * depth * ACTIVATION
    assert most_activations(kept) <= most_activations(plain) - 3
    assert kept.busy < plain.busy, "what is stored is not computed again"
    if schedule == "Grouped":
        assert after.activation_bytes - before.activation_bytes == 2 * ACTIVATION


def test_a_recomputation_that_comes_first_takes_no_notice() -> None:
    (plain, before, _), (kept, after, _) = trained(0, THEN), trained(2, THEN)
    assert kept.stash_bytes == plain.stash_bytes and after.activation_bytes == before.activation_bytes
    assert kept.busy == plain.busy


def test_elsewhere_it_gives_its_tensors() -> None:
    x = tf.constant([1.0, 2.0])
    assert recomputation_checkpoint([x])[0].numpy().tolist() == [1, 2]
    strategy = IPUStrategy()
    with strategy.scope():
        inner = tf.function(lambda x: (recomputation_checkpoint(x * 2.0), tf.constant(1)))

        @tf.function(jit_compile=True, autograph=False)
        def squared(x: tf.Tensor) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(x)
                y, count = inner(recomputation_checkpoint(x))
                loss = tf.reduce_sum(y * recomputation_checkpoint(y))
            return loss, tape.gradient(loss, x), recomputation_checkpoint(count)

        loss, gradient, count = strategy.run(squared, [x])
    assert (float(loss), gradient.numpy().tolist(), int(count)) == (20, [8, 16], 1)
