"""A separate process that runs a workload in one way, a round on each request.

python -m benchmarks.contender WORKLOAD WAY [STEPS], where WAY is ipu, keras, jax or torch with options after commas:
`keras,jit,execution` compiles with XLA and runs the workload's steps per execution. `ipu,single` runs one step in an
execution. STEPS is the number of steps of an epoch. Each line on standard input requests a round, of so many workers if
it has a number; each line on standard output is a JSON object.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from dataclasses import replace
from typing import Any

MEBIBYTE = 1024


def peak_memory() -> float:
    """The peak resident memory of this process, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MEBIBYTE


def main(name: str, way: str, steps: int | None = None) -> None:
    """Set up, report the first step, then run rounds until standard input ends."""
    rival, *options = way.split(",")
    os.environ["KERAS_BACKEND"] = "jax" if rival == "jax" else "torch" if rival == "torch" else "tensorflow"
    import numpy as np

    from benchmarks.workloads import EVERY

    workload = EVERY[name]
    workload = workload if steps is None else replace(workload, steps=steps)
    if rival == "jax":
        from engine.machine_code.processor import lanes

        given = os.environ.get("XLA_FLAGS", "")
        if "prefer_vector_width" not in given:
            os.environ["XLA_FLAGS"] = f"{given} --xla_cpu_prefer_vector_width={32 * lanes()}".strip()
        from benchmarks.rivals.jax_steps import prepare
    elif rival == "torch":
        from benchmarks.rivals.torch_steps import prepare
    else:
        from benchmarks.rivals.keras_fit import prepare
    inputs, labels = workload.data(np.random.default_rng(0), workload.samples)
    before = peak_memory()
    start, began = time.perf_counter(), time.process_time()
    round_of = prepare(workload, rival, options, inputs, labels)
    first, processor = time.perf_counter() - start, time.process_time() - began
    whole = {"first_ended": time.time(), "whole_processor": time.process_time()}
    round_of()
    say(first_step=first, first_processor=processor, peak_memory=peak_memory() - before, **whole)
    for line in sys.stdin:
        if line.strip():
            os.environ["NUMBA_NUM_THREADS"] = line.strip()
        start, began = time.perf_counter(), time.process_time()
        steady = round_of()
        say(whole=time.perf_counter() - start, steady=steady, processor=time.process_time() - began)


def say(**what: Any) -> None:
    """Print a JSON object on a line."""
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:3], *map(int, sys.argv[3:]))
