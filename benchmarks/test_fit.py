"""Training through `model.fit`, data feeding included: the software IPU and plain Keras in one run."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from tensorflow.python import ipu

from benchmarks.comparison import OURS, Comparison
from benchmarks.models import BATCH_SIZE, STEPS_PER_EXECUTION, compiled, lenet, mlp

ROUNDS = 5
WARM_UP = STEPS_PER_EXECUTION * BATCH_SIZE


def seconds_of_epoch(model: keras.Model, x: np.ndarray, y: np.ndarray) -> float:
    start = time.perf_counter()
    model.fit(x, y, batch_size=BATCH_SIZE, verbose=0)
    return time.perf_counter() - start


@pytest.mark.parametrize(
    ("build", "samples", "least_ratio"),
    [pytest.param(mlp, 60_000, 4.0, id="MLP"), pytest.param(lenet, 19_200, 1.0, id="LeNet")],
)
def test_fit(
    build: Callable[[], keras.Model],
    samples: int,
    least_ratio: float,
    benchmark: Any,
    comparisons: list[Comparison],
) -> None:
    generator = np.random.default_rng(0)
    with ipu.ipu_strategy.IPUStrategy().scope():
        ours = compiled(build())
    others = {f"Keras, jit_compile={jit}": compiled(build(), jit) for jit in (True, False)}
    x = generator.random((samples, *ours.input_shape[1:]), np.float32)
    y = generator.integers(0, 10, samples)
    # One execution and one rest of steps each: afterwards nothing is left to compile.
    for model in (ours, *others.values()):
        for size in (WARM_UP, samples % WARM_UP or WARM_UP):
            seconds_of_epoch(model, x[:size], y[:size])
    comparison = Comparison(f"{build.__name__}, batch {BATCH_SIZE}, one epoch of {samples} samples")

    def let_others_run() -> None:
        for name, model in others.items():
            comparison.take(name, lambda model=model: seconds_of_epoch(model, x, y))

    def run() -> None:
        comparison.take(OURS, lambda: seconds_of_epoch(ours, x, y))

    benchmark.pedantic(run, setup=let_others_run, rounds=ROUNDS)
    benchmark.extra_info.update(comparison.extra_info())
    comparisons.append(comparison)
    assert comparison.ratio >= least_ratio
