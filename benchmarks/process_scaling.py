"""Weak scaling over processes, calculated from measured latencies and bandwidths.

python -m benchmarks.process_scaling [--measure] [--chip] [--micro-batches N] [--latency S --rate BYTES] [MODEL ...]

`--measure` times all-reduces between two processes of this machine, by MPI and over gRPC, and prints their links.
`--chip` adds the chip's own prediction. Formulas: Thakur, Rabenseifner, Gropp, Optimization of Collective
Communication Operations in MPICH, 2005.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, log2
from pathlib import Path

import numpy as np

PROCESSES = tuple(4**k for k in range(6))
SMALL, LARGE = 1, 4_000_000
"""Float32 numbers in the all-reduces that are measured."""


@dataclass(frozen=True)
class Link:
    """A link between two processes.

    It has the seconds of an empty message, the bytes per second in each direction, and the bytes per second of summing
    two arrays. `only_ring` excludes algorithms other than the ring, as in TensorFlow's collectives.
    """

    name: str
    latency: float
    rate: float
    sum_rate: float = float("inf")
    only_ring: bool = False

    def all_reduce(self, size: int, processes: int) -> tuple[float, str]:
        """Seconds of an all-reduce of `size` bytes by the fastest algorithm, and its name."""
        if processes <= 1:
            return 0.0, "none"
        steps, part = ceil(log2(processes)), (processes - 1) / processes
        in_parts = 2 * part * size / self.rate + part * size / self.sum_rate
        found = {"ring": 2 * (processes - 1) * self.latency + in_parts}
        if not self.only_ring:
            found["recursive doubling"] = steps * (self.latency + size / self.rate + size / self.sum_rate)
            found["recursive halving"] = 2 * steps * self.latency + in_parts
        name = min(found, key=lambda each: found[each])
        return found[name], name


def link_of(name: str, small: float, large: float, only_ring: bool = False) -> Link:
    """The link on which two processes take `small` and `large` seconds for all-reduces of SMALL and LARGE numbers.

    Two processes exchange halves of an array twice. That takes two latencies and the time to transfer the array once.
    Summing counts as transfer.
    """
    return Link(name, small / 2, 4 * (LARGE - SMALL) / (large - small), only_ring=only_ring)


MEASURED = (
    link_of("MPI", 25.3e-6, 2.9e-3),
    link_of("gRPC", 4.21e-3, 65.5e-3, only_ring=True),
)
"""Links measured by `--measure` on 22 November 2026, between two processes of a busy machine with 2 cores."""


@dataclass(frozen=True)
class Model:
    """A model: seconds of its step in one process of 2 cores (docs/performance.md), and its variables' bytes."""

    step: float
    gradient_bytes: int


MODELS = {
    "lenet": Model(0.678e-3, 4 * 61_706),
    "encoder": Model(11.59e-3, 4 * 398_090),
    "resnet50": Model(85.5e-3, 4 * 23_555_082),
}


def efficiency(model: Model, link: Link, processes: int, micro_batches: int = 1) -> float:
    """The speed of each process relative to a single one. An all-reduce after `micro_batches` overlaps nothing."""
    alone = model.step * micro_batches
    return alone / (alone + link.all_reduce(model.gradient_bytes, processes)[0])


def table(names: list[str], links: tuple[Link, ...], chip: bool, micro_batches: int) -> Iterator[str]:
    """Yield the lines of a Markdown table: the efficiency by each link, for each model and number of processes."""
    kinds = [*(link.name for link in links), *(["chip, replicas"] if chip else [])]
    yield f"| model | processes | {' | '.join(kinds)} |"
    yield "|---|---|" + "---|" * len(kinds)
    for name in names:
        replicas = chip_efficiencies(name, micro_batches) if chip else {}
        for count in PROCESSES:
            cells = [f"{efficiency(MODELS[name], link, count, micro_batches):.2f}" for link in links]
            cells += [f"{replicas[count]:.2f}"] if chip else []
            yield f"| {name} | {count:,} | {' | '.join(cells)} |"


def chip_efficiencies(name: str, micro_batches: int) -> dict[int, float]:
    """The chip's predicted efficiencies for a model, by number of replicas."""
    import keras

    from benchmarks import models
    from ipu.ipu_strategy import IPUStrategy
    from keras_ext.chip import chip_scaling

    built = {"lenet": models.lenet, "encoder": lambda: models.encoder(2, 128), "resnet50": models.resnet50}
    shapes = {"lenet": (32, 28, 28, 1), "encoder": (16, 64, 128), "resnet50": (8, 64, 64, 3)}
    x = np.zeros((micro_batches * shapes[name][0], *shapes[name][1:]), np.float32)
    with IPUStrategy().scope():
        model = built[name]()
        trained = sum(int(np.prod(each.shape)) for each in model.trainable_weights)
        assert 4 * trained == MODELS[name].gradient_bytes, trained
        model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=micro_batches)
        model.compile(
            "sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), steps_per_execution=micro_batches
        )
        model.fit(x, np.zeros(len(x), np.int32), batch_size=shapes[name][0], verbose=0)
        return {each.replicas: each.efficiency for each in chip_scaling(model)}


def measure(rounds: int) -> None:
    """Print the least seconds of all-reduces between the processes of this run."""
    import tensorflow as tf

    from ipu._internal.processes.active import activate, initialise
    from ipu._internal.processes.collective_ops import transport_of

    if "TF_CONFIG" in os.environ:
        activate(transport_of(tf.distribute.cluster_resolver.TFConfigClusterResolver()))
    transport, least = initialise(), []
    for length in (SMALL, LARGE):
        array, found = np.ones(length, np.float32), []
        for _ in range(rounds if length == SMALL else rounds // 10):
            array[:] = 1
            begin = time.perf_counter()
            transport.all_reduce_in_place(array)
            found.append(time.perf_counter() - begin)
        least.append(float(np.median(found)))
    if transport.rank == 0:
        print("SECONDS", json.dumps(least), flush=True)


def measured(kind: str, rounds: int) -> Link:
    """The link between two processes of this machine, by "MPI" or "gRPC"."""
    child = ["-m", "benchmarks.process_scaling", "--child", "--rounds", str(rounds)]
    if kind == "MPI":
        command = [sys.executable, "-m", "ipu.run", "-n", "2", "--workers", "1", "--", *child]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    else:
        held = [socket.create_server(("localhost", 0)) for _ in range(2)]
        workers = [f"localhost:{each.getsockname()[1]}" for each in held]
        for each in held:
            each.close()
        started = []
        for index in range(2):
            task = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}
            environment = {**os.environ, "TF_CONFIG": json.dumps(task), "SOFTWARE_IPU_CONNECTION_TIMEOUT": "120"}
            started.append(subprocess.Popen([sys.executable, *child], env=environment, stdout=-1, text=True))
        text = "".join(each.communicate()[0] for each in started)
    small, large = json.loads(text.split("SECONDS")[1].splitlines()[0])
    print(f"{kind}: {small * 1e6:,.1f} us for {SMALL} number, {large * 1e3:,.1f} ms for {LARGE:,}", flush=True)
    return link_of(kind, small, large, only_ring=kind == "gRPC")


def main() -> None:
    """Read the command line, measure if it says so, print the table."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{Path(__file__).stem}", description=__doc__)
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--measure", action="store_true", help="between two processes of this machine")
    parser.add_argument("--chip", action="store_true", help="add the chip's prediction")
    parser.add_argument("--micro-batches", type=int, default=1, help="gradients accumulated before an all-reduce")
    parser.add_argument("--latency", type=float, help="seconds of a message on another network")
    parser.add_argument("--rate", type=float, help="its bytes per second")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        measure(options.rounds)
        return
    links = tuple(measured(kind, options.rounds) for kind in ("MPI", "gRPC")) if options.measure else MEASURED
    if options.latency and options.rate:
        links = (*links, Link("network", options.latency, options.rate))
    print("\n".join(table(options.models, links, options.chip, options.micro_batches)))


if __name__ == "__main__":
    main()
