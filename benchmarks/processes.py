"""Two processes of one worker beside one process of two workers, on the same batches: `python -m benchmarks.processes`.

The benchmark prints for each model the milliseconds of a step by the clock, in the fastest execution of a few steps:
even a busy machine has short idle intervals. It prints the median of the CPU milliseconds of all processes. It prints
two shares of the fastest execution: the time of all collectives, and of those that overlap no compute. Both include the
wait for the other process. Only models with more bytes of gradients than `--bucket-bytes` overlap collectives.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import keras

BATCH, STEPS, EXECUTIONS, EPOCHS = 32, 5, 40, 10
MODELS = {"lenet": (28, 28, 1), "encoder": (64, 128), "dense": (1024,)}


def dense() -> keras.Model:
    """Six layers of 1024 units: 25 MB of gradients."""
    import keras

    return keras.Sequential([keras.Input((1024,)), *(keras.layers.Dense(1024, "relu") for _ in range(6))])


def measure(name: str) -> None:
    """Train one model in the processes of this run; process 0 prints the figures."""
    import keras
    import popdist
    import popdist.tensorflow

    from benchmarks import models
    from ipu.config import IPUConfig
    from ipu.distributed.popdist_strategy import PopDistStrategy

    strategy, config = PopDistStrategy(), IPUConfig()
    popdist.tensorflow.set_ipu_config(config)
    config.configure_ipu_system()
    transport, count = strategy.transport, popdist.getNumInstances()
    times: list[tuple[float, ...]] = []

    class Times(keras.callbacks.Callback):
        """A callback that notes the clock, the CPU time and the time in collectives after each execution."""

        def on_train_batch_end(self, batch: int, logs: object = None) -> None:
            seconds = transport.seconds, transport.background_seconds
            times.append((time.perf_counter(), time.process_time(), *seconds))

    random = np.random.default_rng(0)
    executions = EXECUTIONS if name == "lenet" else EXECUTIONS // 8
    x = random.normal(size=(BATCH * STEPS * executions // count, *MODELS[name])).astype(np.float32)
    y = random.integers(0, 10, len(x)).astype(np.int32)
    with strategy.scope():
        built = {"lenet": models.lenet, "encoder": lambda: models.encoder(2, 128), "dense": dense}
        model = built[name]()
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(), loss, steps_per_execution=STEPS)
        model.fit(x, y, batch_size=BATCH // count, epochs=EPOCHS, callbacks=[Times()], verbose=0)
    seconds, processor, waited, beside = np.diff(np.array(times), axis=0).T
    best = int(np.argmin(seconds))
    busy = transport.all_reduce(np.array(np.median(processor)))
    if popdist.getInstanceIndex() == 0:
        shares = np.array([max(waited[best], beside[best]), waited[best]]) / seconds[best]
        print("FIGURES", json.dumps([seconds[best], float(busy), *shares]), flush=True)


def figures(name: str, processes: int, options: list[str]) -> list[float]:
    """Seconds, CPU seconds of all processes, and shares of communication, of an execution."""
    command = [sys.executable, "-m", "ipu.run", "-n", str(processes), "--workers", str(2 // processes), *options, "--"]
    done = subprocess.run([*command, "-m", "benchmarks.processes", name, "--child"], capture_output=True, text=True)
    line = next((each for each in done.stdout.splitlines() if "FIGURES" in each), None)
    if line is None:
        raise SystemExit(done.stderr)
    return list(json.loads(line.split("FIGURES")[1]))


def main() -> None:
    """Measure, and print a line for each model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=["lenet", "encoder"], help=", ".join(MODELS))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--bucket-bytes", type=int, help="bytes of gradients that are summed together")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        measure(options.models[0])
        return
    buckets = ["--bucket-bytes", str(options.bucket_bytes)] if options.bucket_bytes else []
    titles = f"{'CPU, ms':>15} {'communication':>14} {'not hidden':>11}"
    print(f"{'model':10} {'1 x 2, ms':>10} {'2 x 1, ms':>10} {'speed':>6} {titles}")
    for name in options.models:
        rounds = [(figures(name, 1, []), figures(name, 2, buckets)) for _ in range(options.rounds)]
        one, two = min(each[0] for each in rounds), min(each[1] for each in rounds)
        print(
            f"{name:10} {one[0] / STEPS * 1e3:10.2f} {two[0] / STEPS * 1e3:10.2f} {one[0] / two[0]:6.2f}"
            f" {one[1] / STEPS * 1e3:7.2f} {two[1] / STEPS * 1e3:7.2f} {two[2]:14.0%} {two[3]:11.0%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
