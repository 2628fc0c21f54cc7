"""Transformer layers as calls of one outlined function, and the same layers inlined: compilation, a step, code.

python -m benchmarks.outlining [--layers N] [--builds N] [--rounds N] [--width N] [--inference]

The time until the first result is the median of several builds of each model, which alternate: single times vary by a
fifth.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import tensorflow as tf

from engine.profile.program_estimate import estimate
from engine.target import target
from ipu._internal.compiler.calling import program_of_function
from ipu.functional_ops import outlined_function
from ipu.ipu_strategy import IPUStrategy

BATCH, LENGTH, HEADS = 4, 64, 4
COMPILATION, RUN = 5.0, 1.03
"""Promises: the least ratio of the seconds until the first result, and the largest ratio of the seconds of a step."""


def norm(x: tf.Tensor, scale: tf.Tensor, offset: tf.Tensor) -> tf.Tensor:
    """Layer normalisation along the last dimension."""
    mean = tf.reduce_mean(x, -1, keepdims=True)
    variance = tf.reduce_mean(tf.square(x - mean), -1, keepdims=True)
    return (x - mean) * tf.math.rsqrt(variance + 1e-5) * scale + offset


def layer(x: tf.Tensor, *weights: tf.Tensor) -> tf.Tensor:
    """A transformer layer of x [BATCH, LENGTH, width]: attention and a dense part, each after a normalisation."""
    scale1, offset1, w_qkv, w_out, scale2, offset2, w1, b1, w2, b2 = weights
    width = x.shape[-1]
    joined = tf.matmul(tf.reshape(norm(x, scale1, offset1), [-1, width]), w_qkv)
    heads = tf.transpose(tf.reshape(joined, [BATCH, LENGTH, 3, HEADS, width // HEADS]), [2, 0, 3, 1, 4])
    scores = tf.nn.softmax(tf.matmul(heads[0], heads[1], transpose_b=True) * (width // HEADS) ** -0.5)
    attended = tf.reshape(tf.transpose(tf.matmul(scores, heads[2]), [0, 2, 1, 3]), [-1, width])
    x += tf.reshape(tf.matmul(attended, w_out), x.shape)
    hidden = tf.nn.gelu(tf.matmul(tf.reshape(norm(x, scale2, offset2), [-1, width]), w1) + b1)
    return x + tf.reshape(tf.matmul(hidden, w2) + b2, x.shape)


@dataclass(frozen=True)
class Contender:
    """A model that has run once: `first` seconds until its first result, `again` runs a step."""

    first: float
    processor: float
    """Seconds of processor time until the first result."""
    again: Callable[[], Any]
    code: int
    """Bytes of code on the fullest tile of a Mk2 IPU."""


def contender(outlined: bool, layers: int, width: int, training: bool, shift: float) -> Contender:
    """The model on its own variables. Only this model has the constant `shift`, so its program is in no cache."""
    strategy = IPUStrategy()
    random = np.random.default_rng(0)
    shapes = [[width], [width], [width, 3 * width], [width, width], [width], [width]]
    shapes += [[width, 4 * width], [4 * width], [4 * width, width], [width]]
    with strategy.scope():
        weights = [
            [tf.Variable(random.normal(size=s).astype(np.float32) * 0.05) for s in shapes] for _ in range(layers)
        ]
    call = outlined_function(layer) if outlined else layer

    @tf.function(autograph=False)
    def step(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            y = x
            for own in weights:
                y = call(y, *own)
            loss = tf.reduce_mean(tf.square(y - shift))
        if training:
            flat = [variable for own in weights for variable in own]
            for variable, gradient in zip(flat, tape.gradient(loss, flat), strict=True):
                variable.assign_sub(0.01 * gradient)
        return loss

    x = random.normal(size=[BATCH, LENGTH, width]).astype(np.float32)
    again = partial(strategy.run, step, (x,))
    gc.collect()  # of earlier models
    start, processor = time.perf_counter(), time.process_time()
    again()
    first, processor = time.perf_counter() - start, time.process_time() - processor
    program = program_of_function(step)
    assert program is not None
    code = int(estimate(program.engine_program, target("ipu2")).tiles.fixed["code"].max())
    return Contender(first, processor, again, code)


def seconds(run: Callable[[], Any]) -> float:
    """Seconds of one run."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main() -> None:
    """Print the figures of both, and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    for option, default in (("--layers", 48), ("--builds", 3), ("--rounds", 40), ("--width", 64)):
        parser.add_argument(option, type=int, default=default)
    parser.add_argument("--inference", action="store_true", help="without gradients and updates")
    options = parser.parse_args()
    shift = time.time() % 1
    build = partial(contender, width=options.width, training=not options.inference)
    for outlined in (True, False):
        build(outlined, layers=2, shift=shift)  # compiles the codelets, which more layers share
    builds = [
        [build(outlined, layers=options.layers, shift=shift + number) for outlined in (True, False)]
        for number in range(options.builds)
    ]
    (first_shared, first_inlined), (cpu_shared, cpu_inlined) = (
        [median(getattr(each, name) for each in made) for made in zip(*builds, strict=True)]
        for name in ("first", "processor")
    )
    shared, inlined = builds[-1]
    pairs = [(seconds(shared.again), seconds(inlined.again)) for _ in range(options.rounds)]
    steps = [median(times) for times in zip(*pairs, strict=True)]
    print(f"{options.layers} layers           outlined   inlined")
    print(f"first result, s     {first_shared:8.2f}  {first_inlined:8.2f}   {first_inlined / first_shared:.2f} times")
    ratio = cpu_inlined / cpu_shared
    print(f"  of processor time {cpu_shared:8.2f}  {cpu_inlined:8.2f}   {ratio:.2f} (promise: {COMPILATION})")
    paired = median(a / b for a, b in pairs)
    print(f"step, ms            {steps[0] * 1e3:8.2f}  {steps[1] * 1e3:8.2f}   {paired:.3f} (promise: {RUN})")
    print(f"code, bytes on tile {shared.code:8,}  {inlined.code:8,}   {inlined.code / shared.code:.2f} times less")


if __name__ == "__main__":
    main()
