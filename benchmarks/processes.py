"""Two processes of one worker beside one process of two workers, on the same batches: `python -m benchmarks.processes`.

For each model: milliseconds of a step by the clock, of the fastest execution of a few steps, as a busy machine leaves
short idle intervals alone; CPU milliseconds of all processes, in the median; and the share of the time that
collectives take in the fastest execution, the waiting for the other process included.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time

import numpy as np

BATCH, STEPS, EXECUTIONS, EPOCHS = 32, 5, 40, 10
MODELS = {"lenet": (28, 28, 1), "encoder": (64, 128)}


def measure(name: str) -> None:
    """Trains one model in the processes of this run; process 0 prints the figures."""
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
    times: list[tuple[float, float, float]] = []

    class Times(keras.callbacks.Callback):
        """Notes the clock, the CPU time and the time in collectives after each execution."""

        def on_train_batch_end(self, batch: int, logs: object = None) -> None:
            times.append((time.perf_counter(), time.process_time(), transport.seconds))

    random = np.random.default_rng(0)
    executions = EXECUTIONS if name == "lenet" else EXECUTIONS // 8
    x = random.normal(size=(BATCH * STEPS * executions // count, *MODELS[name])).astype(np.float32)
    y = random.integers(0, 10, len(x)).astype(np.int32)
    with strategy.scope():
        model = models.lenet() if name == "lenet" else models.encoder(2, 128)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(), loss, steps_per_execution=STEPS)
        model.fit(x, y, batch_size=BATCH // count, epochs=EPOCHS, callbacks=[Times()], verbose=0)
    seconds, processor, waited = np.diff(np.array(times), axis=0).T
    best = int(np.argmin(seconds))
    busy = transport.all_reduce(np.array(np.median(processor)))
    if popdist.getInstanceIndex() == 0:
        print("FIGURES", json.dumps([seconds[best], float(busy), waited[best] / seconds[best]]), flush=True)


def figures(name: str, processes: int) -> list[float]:
    """Seconds, CPU seconds of all processes, and share of communication, of an execution."""
    command = [sys.executable, "-m", "ipu.run", "-n", str(processes), "--workers", str(2 // processes), "--"]
    done = subprocess.run([*command, "-m", "benchmarks.processes", name, "--child"], capture_output=True, text=True)
    line = next((each for each in done.stdout.splitlines() if "FIGURES" in each), None)
    if line is None:
        raise SystemExit(done.stderr)
    return list(json.loads(line.split("FIGURES")[1]))


def main() -> None:
    """Measures and prints a line for each model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        measure(options.models[0])
        return
    print(f"{'model':10} {'1 x 2, ms':>10} {'2 x 1, ms':>10} {'speed':>6} {'CPU, ms':>15} {'communication':>14}")
    for name in options.models:
        rounds = [(figures(name, 1), figures(name, 2)) for _ in range(options.rounds)]
        one, two = min(each[0] for each in rounds), min(each[1] for each in rounds)
        print(
            f"{name:10} {one[0] / STEPS * 1e3:10.2f} {two[0] / STEPS * 1e3:10.2f} {one[0] / two[0]:6.2f}"
            f" {one[1] / STEPS * 1e3:7.2f} {two[1] / STEPS * 1e3:7.2f} {two[2]:14.0%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
