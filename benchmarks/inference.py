"""Latency and throughput of inference, beside TensorFlow, ONNX Runtime and OpenVINO on the same weights.

python -m benchmarks.inference [--models NAME ...] [--batches N ...] [--rounds N] [--keep]

Each way has a process of its own, and the rounds of all ways alternate. A call takes one batch from a NumPy array to a
NumPy array; calls follow one another and use all cores. A round's figure is the median of its calls, and the benchmark
prints the median of the rounds. It also compares the answers of all ways. The other libraries are optional: `pip
install onnxruntime openvino onnx torch`. ONNX and PyTorch write the ONNX file that ONNX Runtime and OpenVINO run.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.figures import Figures
from benchmarks.race import LIMIT, OURS, Contender, Race, missing_if_failed
from benchmarks.workloads import WORKLOADS, Workload

MODELS = ("mlp", "lenet", "resnet20", "lstm", "encoder, 2 layers", "efficientnet")
WAYS = {
    OURS: (),
    "tensorflow": (),
    "tensorflow,jit": (),
    "onnxruntime": ("onnxruntime", "onnx", "torch"),
    "openvino": ("openvino", "onnx", "torch"),
}
"""The libraries that each way needs."""
TOLERANCE = 2e-3
"""Largest difference of answers as a share of the largest answer: sums of float32 have other orders."""


def race(workload: Workload, batch: int, rounds: int, limit: float, console: Console) -> Race:
    """Run a round of each way after the other, several times; raise AssertionError if answers differ."""
    missing = {way: f"needs {name}" for way, names in WAYS.items() for name in names if find_spec(name) is None}
    made = Race(workload, [], missing)
    with tempfile.TemporaryDirectory() as folder:
        try:
            for way in [way for way in WAYS if way not in missing]:
                with missing_if_failed(made, way, console.print):
                    module = ["benchmarks.rivals.inference_calls", workload.name, way, str(batch), folder]
                    made.contenders.append(Contender.run(way, module, limit))
            answers = {each.way: np.load(Path(folder) / f"{each.way}.npy") for each in made.contenders}
            for way, answer in answers.items():
                difference = np.abs(answer - answers[OURS]).max() / np.abs(answers[OURS]).max()
                assert difference < TOLERANCE, f"Expected {way} to answer as we do. Received: {difference:.2g} of it"
            for _ in range(rounds):
                for each in list(made.contenders):
                    with missing_if_failed(made, each.way, console.print):
                        each.round()
        finally:
            for each in made.contenders:
                each.stop()
    return made


def main() -> None:
    """Read the command line, measure, print a table for each model."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.inference", description="Inference beside others.")
    parser.add_argument("--models", nargs="*", default=MODELS, choices=WORKLOADS, metavar="NAME")
    parser.add_argument("--batches", type=int, nargs="*", default=[1, 8, 256])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds until a way is given up")
    parser.add_argument("--keep", action="store_true", help="keep the medians as this processor's, for benchmarks.page")
    options = parser.parse_args()
    console, progress = Console(width=110), Console(stderr=True)
    failed: list[str] = []
    for name in options.models:
        table = Table(title=f"{name}, inference", title_justify="left")
        for heading in ("batch", "way", "ms", "p99 ms", "samples/s", "x ours", "processor ms", "x ours"):
            table.add_column(heading, justify="left" if heading == "way" else "right")
        for batch in options.batches:
            try:
                done = race(WORKLOADS[name], batch, options.rounds, options.limit, progress)
            except (RuntimeError, AssertionError) as error:  # our way failed or an answer is wrong; other models go on
                failed.append(name)
                table.add_row(str(batch), OURS, str(error).splitlines()[-1][:60])
                continue
            figures = {
                each.way: {
                    name: 1e3 * statistics.median(values)
                    for name, values in (("ms", each.whole), ("p99", each.steady), ("processor", each.processor))
                }
                for each in done.contenders
            }
            for way, each in figures.items():
                cells = f"{each['ms']:.3f}", f"{each['p99']:.3f}", f"{1e3 * batch / each['ms']:.0f}"
                ratio, share = (f"{each[name] / figures[OURS][name]:.2f}" for name in ("ms", "processor"))
                cells = *cells, ratio, f"{each['processor']:.3f}", share
                table.add_row(str(batch), way, *cells, style="bold" if way == OURS else None)
            for way, reason in done.missing.items():
                table.add_row(str(batch), way, reason)
            progress.print(f"{name}, batch {batch}: measured")
            if options.keep:
                kept = {"ways": figures, "missing": done.missing}
                Figures.here().add("inference", f"{name}, batch {batch}", kept)
        console.print(table)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
