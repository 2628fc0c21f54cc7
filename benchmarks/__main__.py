"""Races the workloads and prints a table for each: `python -m benchmarks [--rounds N] [WORKLOAD ...]`."""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import replace

from rich.console import Console

from benchmarks.figures import Figures
from benchmarks.race import LIMIT, race
from benchmarks.round_trip import description
from benchmarks.tables import table
from benchmarks.workloads import APPLICATIONS, WORKLOADS
from engine.machine_code.instruction_sets import LEVELS

FAMILY = "applications"
HELP = f"{', '.join(WORKLOADS)}; {', '.join(APPLICATIONS)}, or all of the latter: {FAMILY} (default: all of the former)"


def limit_to_avx2() -> None:
    """Let all programs use AVX2 alone: ours, XLA's code, and the kernels of oneDNN and PyTorch.

    XLA's products by YNNPACK, which uses AVX-512 whatever XLA is told, give way to XLA's own.
    """
    os.environ["NUMBA_CPU_NAME"], os.environ["NUMBA_CPU_FEATURES"] = LEVELS["x86-64-v3"]
    os.environ["ONEDNN_MAX_CPU_ISA"], os.environ["ATEN_CPU_CAPABILITY"] = "AVX2", "avx2"
    flags = "--xla_cpu_max_isa=AVX2 --xla_cpu_experimental_ynn_fusion_type="
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip()


def main() -> None:
    """Read the command line, race, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Races the software IPU and others.")
    parser.add_argument("workloads", nargs="*", default=list(WORKLOADS), metavar="WORKLOAD", help=HELP)
    parser.add_argument("--rounds", type=int, default=5, help="epochs of each way that count, after a first one")
    parser.add_argument("--executions", type=int, metavar="N", help="most executions of an epoch, from 2 on")
    parser.add_argument("--ways", nargs="*", help="for example ipu keras,jit,execution jax")
    parser.add_argument(
        "--limit", type=float, default=LIMIT, help="seconds until a way is given up (default %(default)g)"
    )
    parser.add_argument("--avx2", action="store_true", help="all programs use AVX2 alone, on a processor with AVX-512")
    parser.add_argument("--keep", action="store_true", help="keep the medians as this processor's, for benchmarks.page")
    options = parser.parse_args()
    if options.avx2:
        limit_to_avx2()
    known = WORKLOADS | APPLICATIONS
    named = [each for name in options.workloads for each in (APPLICATIONS if name == FAMILY else (name,))]
    if unknown := [name for name in named if name not in known]:
        parser.error(f"Expected workloads among {', '.join(known)}. Received: {unknown[0]!r}")
    console, progress = Console(width=126), Console(stderr=True)
    failed: list[str] = []
    start = time.monotonic()
    for number, name in enumerate(named, 1):
        workload = known[name]
        if options.executions:
            workload = replace(workload, steps=min(workload.steps, max(options.executions, 2) * workload.execution))
        try:
            done = race(workload, options.rounds, options.ways, options.limit, progress.print)
        except RuntimeError as error:  # ours; the other workloads go on
            failed.append(name)
            console.print(f"{name}: {error}", markup=False)
            continue
        console.print(table(done))
        if done.barriers:
            console.print(description(done.barriers, Figures.here().barriers()))
        if options.keep:
            found = {"ways": done.figures(), "missing": done.missing, "barriers": done.barriers}
            Figures.here().add("races", name, found)
        progress.print(f"{number} of {len(named)} workloads after {time.monotonic() - start:.0f} s")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
