"""Training steps in `loops.repeat`, executed by a session, as a share of the speed of the same model's `fit`.

python -m benchmarks.session_loops [--rounds N]

Both read rows in place and divide a step among workers in the same way. A loop also waits for its queues. Run the
benchmark on an idle machine: other processes change the ratio by more than the promise allows.
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
from ipu.ipu_compiler import compile as compile_program
from ipu.ipu_infeed_queue import IPUInfeedQueue
from ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipu.ipu_strategy import IPUStrategy
from ipu.loops import repeat

v1 = tf.compat.v1
STEPS, PROMISE = 500, 0.95
WIDTHS = (784, 256, 128, 10)


def in_fit(x: np.ndarray, y: np.ndarray, batch: int) -> Callable[[], Any]:
    """A function that runs all steps as an epoch of `fit`, in one execution."""
    with IPUStrategy().scope():
        model = mlp()
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.01), loss, steps_per_execution=STEPS)
    return lambda: model.fit(x, y, batch_size=batch, shuffle=False, verbose=0)


def in_session(x: np.ndarray, y: np.ndarray, batch: int) -> Callable[[], Any]:
    """A function that runs all steps as a loop in one Session.run, and dequeues the losses in another."""
    with tf.Graph().as_default():
        data = tf.data.Dataset.from_tensor_slices((x, y)).batch(batch, drop_remainder=True).repeat()
        infeed, outfeed = IPUInfeedQueue(data), IPUOutfeedQueue()

        def step(x: tf.Tensor, y: tf.Tensor) -> Any:
            for number, units in enumerate(WIDTHS[1:]):
                with v1.variable_scope(f"layer{number}", use_resource=True):
                    kernel = v1.get_variable("kernel", [x.shape[-1], units])
                    x = x @ kernel + v1.get_variable("bias", [units], initializer=v1.zeros_initializer())
                x = x if units == WIDTHS[-1] else tf.nn.relu(x)
            loss = v1.losses.sparse_softmax_cross_entropy(y, x)
            return outfeed.enqueue(loss), v1.train.GradientDescentOptimizer(0.01).minimize(loss)

        program = compile_program(lambda: repeat(STEPS, step, [], infeed))
        losses, session = outfeed.dequeue(), v1.Session()
        session.run([v1.global_variables_initializer(), infeed.initializer])

    def run() -> None:
        session.run(program)
        assert session.run(losses).shape == (STEPS,)

    return run


def race(batch: int, rounds: int) -> tuple[float, float]:
    """The least seconds of `fit` and of the session, which alternate."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(batch * STEPS, WIDTHS[0])).astype(np.float32)
    y = generator.integers(0, WIDTHS[-1], len(x)).astype(np.int32)
    seconds: list[list[float]] = []
    ways = in_fit(x, y, batch), in_session(x, y, batch)
    for _ in range(rounds + 1):  # the first round compiles
        seconds.append([])
        for way in ways:
            start = time.perf_counter()
            way()
            seconds[-1].append(time.perf_counter() - start)
    fit, session = np.min(seconds[1:], axis=0)
    return float(fit), float(session)


def main() -> None:
    """Read the command line, race, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.session_loops", description="Loops in sessions.")
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    for batch in (32, 256):
        fit, session = race(batch, rounds)
        print(
            f"mlp, batch {batch}, ms a step: fit {1e3 * fit / STEPS:.4f}, session {1e3 * session / STEPS:.4f}, "
            f"ratio {fit / session:.2f} (promise {PROMISE})"
        )


if __name__ == "__main__":
    main()
