"""A pipeline of four stages on four IPUs, in each schedule, with and without recomputation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from tests.graphs.programs.on_host import check, configure, dataset, dense, trained_on_host, variables_of

v1 = tf.compat.v1
MICRO_BATCHES, UPDATES, WIDTH = 8, 3, 6
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=[MICRO_BATCHES * UPDATES, 4, WIDTH]).astype(np.float32)
LABELS = X.argmax(-1).astype(np.int32)


def stage1(x: tf.Tensor, labels: tf.Tensor) -> Any:
    return tf.nn.relu(dense(x, 8, "stage1")), labels


def stage2(h: tf.Tensor, labels: tf.Tensor) -> Any:
    return tf.tanh(dense(h, 8, "stage2")), labels


def stage3(h: tf.Tensor, labels: tf.Tensor) -> Any:
    return h + dense(h, 8, "stage3"), labels


def stage4(h: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    return v1.losses.sparse_softmax_cross_entropy(labels, dense(h, WIDTH, "stage4"))


def unsplit(x: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    return stage4(*stage3(*stage2(*stage1(x, labels))))


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("schedule", "recompute"), [("Grouped", False), ("Grouped", True), ("Interleaved", True), ("Sequential", False)]
)
def test_a_pipeline_of_four_stages(schedule: str, recompute: bool) -> None:
    configure(4, allow_recompute=recompute)
    ops = ipu.pipelining_ops
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset(list(zip(X, LABELS, strict=True))))
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def optimizer_function(loss: tf.Tensor) -> Any:
        return ops.OptimizerFunctionOutput(v1.train.MomentumOptimizer(0.1, 0.9), loss)

    def net() -> Any:
        return ops.pipeline(
            computational_stages=[stage1, stage2, stage3, stage4],
            gradient_accumulation_count=MICRO_BATCHES,
            repeat_count=UPDATES,
            infeed_queue=infeed,
            outfeed_queue=outfeed,
            optimizer_function=optimizer_function,
            pipeline_schedule=ops.PipelineSchedule[schedule],
            reduction_method=ipu.gradient_accumulation.GradientAccumulationReductionMethod.MEAN,
            name="Model",
        )

    with ipu.scopes.ipu_scope("/device:IPU:0"):
        program = ipu.ipu_compiler.compile(net, inputs=[])
    (losses,) = outfeed.dequeue()
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        session.run(infeed.initializer)
        session.run(program)
        seen, ours = session.run(losses), variables_of(session)
    together = list(zip(X.reshape(UPDATES, -1, WIDTH), LABELS.reshape(UPDATES, -1), strict=True))
    theirs, expected = trained_on_host(unsplit, lambda: v1.train.MomentumOptimizer(0.1, 0.9), together)
    theirs.pop("global_step")
    np.testing.assert_allclose(seen.reshape(UPDATES, -1).mean(1), expected, rtol=1e-4)
    check({name.removeprefix("Model/"): value for name, value in ours.items()}, theirs)
