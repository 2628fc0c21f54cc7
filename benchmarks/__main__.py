"""Races the workloads and prints a table: `python -m benchmarks [--rounds N] [--ways WAY ...] [WORKLOAD ...]`."""

from __future__ import annotations

import argparse

from rich.console import Console

from benchmarks.race import race
from benchmarks.tables import table
from benchmarks.workloads import WORKLOADS


def main() -> None:
    """Reads the command line, races, prints."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Races the software IPU and others.")
    parser.add_argument("workloads", nargs="*", default=list(WORKLOADS), metavar="WORKLOAD", help=", ".join(WORKLOADS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ways", nargs="*", help="for example ipu keras,jit,execution jax")
    options = parser.parse_args()
    console = Console(width=110)
    for name in options.workloads:
        if name not in WORKLOADS:
            parser.error(f"Expected workloads among {', '.join(WORKLOADS)}. Received: {name!r}")
        with console.status(f"racing {name}"):
            done = race(WORKLOADS[name], options.rounds, options.ways)
        console.print(table(done))


if __name__ == "__main__":
    main()
