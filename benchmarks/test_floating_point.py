"""The cost of floating-point behaviour: steps of an MLP with it and without it alternate in one process."""

from __future__ import annotations

import time
from typing import Any

import keras
import numpy as np
import pytest

from ipu.config import IPUConfig, reset_ipu_configuration
from ipu.ipu_strategy import IPUStrategy

BATCH, STEPS, ROUNDS = 128, 20, 4
Behaviours = dict[str, dict[str, bool]]
EXCEPTIONS = {"inv": True, "div0": True, "oflo": True}


class Contender:
    """A model compiled for one behaviour. Configuring another behaviour drops the program, so each round recompiles."""

    def __init__(self, dtype: str, behaviour: dict[str, bool], steps_per_execution: int) -> None:
        self.behaviour = behaviour
        self.configure()
        keras.utils.set_random_seed(1)
        with IPUStrategy().scope():
            dense = [keras.layers.Dense(512, "relu", dtype=dtype) for _ in range(2)]
            layers = [keras.Input((784,), dtype=dtype), *dense, keras.layers.Dense(10, dtype=dtype)]
            self.model = keras.Sequential(layers)
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            self.model.compile(keras.optimizers.SGD(0.01), loss, steps_per_execution=steps_per_execution)
        generator = np.random.default_rng(0)
        self.x = generator.normal(size=(BATCH * STEPS, 784)).astype(np.float16 if dtype == "float16" else np.float32)
        self.y = generator.integers(0, 10, BATCH * STEPS).astype(np.int32)

    def configure(self) -> None:
        config = IPUConfig()
        for name, value in self.behaviour.items():
            setattr(config.floating_point_behaviour, name, value)
        config.configure_ipu_system()

    def best(self) -> float:
        """The least seconds of a step in some epochs, after one epoch that compiles."""
        self.configure()
        times = []
        with IPUStrategy().scope():
            for _ in range(4):
                start = time.perf_counter()
                self.model.fit(self.x, self.y, batch_size=BATCH, shuffle=False, verbose=0)
                times.append((time.perf_counter() - start) / STEPS)
        return min(times[1:])


def compare(
    dtype: str, behaviours: dict[str, dict[str, bool]], steps_per_execution: int, benchmark: Any
) -> dict[str, float]:
    """Note the milliseconds of a step for each behaviour, the least of all rounds."""
    contenders = {name: Contender(dtype, each, steps_per_execution) for name, each in behaviours.items()}
    best = dict.fromkeys(contenders, float("inf"))

    def turn() -> None:
        for name, contender in contenders.items():
            best[name] = min(best[name], contender.best())

    try:
        benchmark.pedantic(turn, rounds=ROUNDS)
    finally:
        reset_ipu_configuration()
    found = {name: round(1e3 * value, 3) for name, value in best.items()}
    first, *others = found
    ratios = {f"{name} / {first}": round(found[name] / found[first], 2) for name in others}
    benchmark.extra_info.update(found | ratios)
    print(dtype, steps_per_execution, found, ratios)


@pytest.mark.parametrize("steps_per_execution", [1, 20])
def test_exceptions(steps_per_execution: int, benchmark: Any) -> None:
    """Compare in single precision. With one step for each call, copies of the variables take most of the time."""
    compare("float32", {"off": {}, "exceptions": EXCEPTIONS}, steps_per_execution, benchmark)


def test_half_precision(benchmark: Any) -> None:
    """`nanoo` alone makes the same conversions as `esr`, but to the nearest float16."""
    behaviours: Behaviours = {"nanoo": {"nanoo": True}, "off": {}, "esr": {"esr": True}}
    compare("float16", behaviours, 20, benchmark)
