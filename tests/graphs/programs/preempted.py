"""A program that trains until its last step and goes on from its checkpoints; it can kill itself on the way.

python -m tests.graphs.programs.preempted CHECKPOINTS LAST_STEP [--killed-after N] [--without-v2-behavior]
"""

from __future__ import annotations

import argparse
import os
import signal
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python import ipu

from tests.graphs.programs.on_host import Batch, dense

v1 = tf.compat.v1
X = np.random.default_rng(0).normal(size=[12, 8, 3]).astype(np.float32)
BATCHES: list[Batch] = list(zip(X, X.sum(-1, keepdims=True), strict=True))


def error(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    return v1.losses.huber_loss(y, dense(tf.nn.elu(dense(x, 8, "hidden")), 1, "output"))


def optimizer() -> Any:
    return v1.train.AdamOptimizer(0.05)


class Killed(v1.train.SessionRunHook):
    """Kills the process after a number of runs."""

    def __init__(self, runs: int) -> None:
        self._left = runs

    def after_run(self, context: Any, values: Any) -> None:
        self._left -= 1
        if not self._left:
            os.kill(os.getpid(), signal.SIGKILL)


def train(checkpoints: str, last_step: int, hooks: list[Any]) -> list[int]:
    """Trains on the batch of each step, and saves every two steps; returns the steps that this process has run."""
    steps = []
    with tf.Graph().as_default():
        x, y = (v1.placeholder(tf.float32, array.shape) for array in BATCHES[0])
        global_step = v1.train.get_or_create_global_step()

        def training_step(x: tf.Tensor, y: tf.Tensor) -> Any:
            loss = error(x, y)
            return loss, optimizer().minimize(loss, global_step=global_step)

        with ipu.scopes.ipu_scope("/device:IPU:0"):
            (loss,) = ipu.ipu_compiler.compile(training_step, [x, y])
        with v1.train.MonitoredTrainingSession(
            checkpoint_dir=checkpoints,
            hooks=[v1.train.StopAtStepHook(last_step=last_step), v1.train.NanTensorHook(loss), *hooks],
            save_checkpoint_steps=2,
            save_summaries_steps=None,
            save_summaries_secs=None,
            log_step_count_steps=None,
        ) as session:
            while not session.should_stop():
                step = session.run_step_fn(lambda step_context: step_context.session.run(global_step))
                session.run(loss, dict(zip((x, y), BATCHES[step % len(BATCHES)], strict=True)))
                steps.append(int(step))
    return steps


def main() -> None:
    """Reads the command line, trains."""
    parser = argparse.ArgumentParser(description="Trains until its last step, or until it is killed.")
    parser.add_argument("checkpoints")
    parser.add_argument("last_step", type=int)
    parser.add_argument("--killed-after", type=int)
    parser.add_argument("--without-v2-behavior", action="store_true")
    options = parser.parse_args()
    if options.without_v2_behavior:
        v1.disable_v2_behavior()
    train(options.checkpoints, options.last_step, [Killed(options.killed_after)] if options.killed_after else [])


if __name__ == "__main__":
    main()
