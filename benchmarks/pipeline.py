"""Training speed of a pipeline of four stages, as a share of the unsplit model's with the same accumulation.

python -m benchmarks.pipeline [--rounds N]
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from keras import layers
from rich.console import Console
from rich.table import Table

from ipu.ipu_strategy import IPUStrategy
from ipu.pipelining_ops import PipelineSchedule

STAGES, STEPS, UPDATES = 4, 16, 4
SIZES = [(64, 32), (256, 64), (256, 256), (512, 64)]
"""Widths of the layers and batch sizes."""


@dataclass
class Contestant:
    """A model, and the least seconds of its `fit`."""

    model: Any
    seconds: float = float("inf")


def perceptron(width: int, schedule: PipelineSchedule | None) -> Any:
    """A model of eight dense layers, two for each stage, or without stages if `schedule` is None."""
    keras.utils.set_random_seed(0)
    with IPUStrategy().scope():
        hidden = [layers.Dense(width, "relu") for _ in range(2 * STAGES - 1)]
        model = keras.Sequential([layers.Input((width,)), *hidden, layers.Dense(10)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("sgd", loss, steps_per_execution=STEPS * UPDATES)
    if schedule is None:
        model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=STEPS)
    else:
        model.set_pipeline_stage_assignment([number // 2 for number in range(2 * STAGES)])
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=STEPS, pipeline_schedule=schedule)
    return model


def data(width: int, batch: int) -> tuple[np.ndarray, np.ndarray]:
    """Random inputs, float32 [samples, width], and labels, int32 [samples], of an epoch."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(batch * STEPS * UPDATES, width)).astype(np.float32)
    return x, generator.integers(0, 10, len(x)).astype(np.int32)


def race(width: int, batch: int, rounds: int) -> dict[str, float]:
    """The least seconds of each way, by name. Each round runs all ways, as a machine's speed varies over time."""
    x, y = data(width, batch)
    ways = {"unsplit": Contestant(perceptron(width, None))}
    ways |= {schedule.name: Contestant(perceptron(width, schedule)) for schedule in PipelineSchedule}
    for number in range(rounds + 1):
        for way in ways.values():
            start = time.perf_counter()
            way.model.fit(x, y, batch_size=batch, shuffle=False, verbose=0)
            if number:  # the first round compiles
                way.seconds = min(way.seconds, time.perf_counter() - start)
    return {name: way.seconds for name, way in ways.items()}


def main() -> None:
    """Read the command line, race, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipeline", description="Races pipelines.")
    parser.add_argument("--rounds", type=int, default=10)
    rounds = parser.parse_args().rounds
    schedules = [schedule.name for schedule in PipelineSchedule]
    table = Table("width x batch", "unsplit, samples/s", *schedules, title="Throughput of 4 stages, unsplit = 1")
    for width, batch in SIZES:
        seconds = race(width, batch, rounds)
        samples = batch * STEPS * UPDATES / seconds["unsplit"]
        shares = [f"{seconds['unsplit'] / seconds[name]:.2f}" for name in schedules]
        table.add_row(f"{width} x {batch}", f"{samples:,.0f}", *shares)
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
