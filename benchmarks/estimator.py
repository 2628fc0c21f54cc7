"""Training steps of an IPUEstimator, as a share of the speed of the same model's `fit` with equal executions.

python -m benchmarks.estimator [--rounds N] [--loops N]

An execution of `fit` has as many steps as a loop of the estimator. The time of `train` includes building the graph and
the session, and the checkpoints at the start and the end; the model is compiled before.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from benchmarks.models import mlp
from ipu.ipu_estimator import IPUEstimator
from ipu.ipu_run_config import IPURunConfig, RunConfig
from ipu.ipu_strategy import IPUStrategy

v1 = tf.compat.v1
BATCH, STEPS_PER_LOOP, LOOPS, RATE, PROMISE = 32, 1000, 100, 0.01, 0.9


def in_fit(x: np.ndarray, y: np.ndarray, loops: int) -> Callable[[], Any]:
    """A function that runs an epoch of `fit` for each loop."""
    with IPUStrategy().scope():
        model = mlp()
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(RATE), loss, steps_per_execution=STEPS_PER_LOOP)
    return lambda: model.fit(x, y, batch_size=BATCH, epochs=loops, shuffle=False, verbose=0)


def in_estimator(x: np.ndarray, y: np.ndarray, loops: int) -> Callable[[], Any]:
    """A function that runs all loops in one call of `train`."""

    def batches() -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH, drop_remainder=True).repeat()

    def model_fn(features: tf.Tensor, labels: tf.Tensor, mode: str) -> Any:
        logits = mlp()(features, training=True)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        train_op = v1.train.GradientDescentOptimizer(RATE).minimize(loss)
        return v1.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

    estimator = IPUEstimator(model_fn, config=RunConfig(IPURunConfig(STEPS_PER_LOOP)))
    return lambda: estimator.train(batches, steps=loops * STEPS_PER_LOOP)


def race(rounds: int, loops: int) -> tuple[np.ndarray, np.ndarray]:
    """Seconds by the clock and of the processors, each [rounds, 2], for `fit` and the estimator, which alternate."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(BATCH * STEPS_PER_LOOP, 784)).astype(np.float32)
    y = generator.integers(0, 10, len(x)).astype(np.int32)
    makers = in_fit, in_estimator
    for make in makers:
        make(x, y, 1)()  # compiles
    ways = [make(x, y, loops) for make in makers]
    clock, processors = np.zeros([rounds, 2]), np.zeros([rounds, 2])
    for numbers in np.ndindex(rounds, 2):
        starts = time.perf_counter(), time.process_time()
        ways[numbers[1]]()
        clock[numbers], processors[numbers] = time.perf_counter() - starts[0], time.process_time() - starts[1]
    return clock, processors


def main() -> None:
    """Read the command line, race, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.estimator", description="Loops of an estimator.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--loops", type=int, default=LOOPS)
    options = parser.parse_args()
    steps = options.loops * STEPS_PER_LOOP
    for name, seconds in zip(("seconds", "CPU seconds"), race(options.rounds, options.loops), strict=True):
        fit, estimator = seconds.min(0)
        print(
            f"mlp, batch {BATCH}, {steps:,} steps, {STEPS_PER_LOOP:,} a loop, {name}: fit {fit:.2f}, "
            f"estimator {estimator:.2f}, ratio {fit / estimator:.2f} (promise {PROMISE})"
        )


if __name__ == "__main__":
    main()
