"""Races the workloads and prints a table: `python -m benchmarks [--rounds N] [--ways WAY ...] [WORKLOAD ...]`."""

from __future__ import annotations

import argparse
import statistics

from rich.console import Console
from rich.table import Table

from benchmarks.race import OURS, Race, race
from benchmarks.workloads import WORKLOADS


def rows(done: Race) -> list[tuple[str, ...]]:
    """A row for each way: what it took, absolutely and in multiples of ours."""
    made = []
    ours = done.ours
    for each in done.contenders:
        whole, steady = statistics.median(each.whole), statistics.median(each.steady)
        made.append(
            (
                each.way,
                f"{whole * 1e3 / done.workload.steps:.3f}",
                f"{whole / statistics.median(ours.whole):.2f}",
                f"{steady * 1e3:.3f}",
                f"{steady / statistics.median(ours.steady):.2f}",
                f"{each.first_step:.2f}",
                f"{each.peak_memory:.0f}",
            )
        )
    return made


def table(done: Race) -> Table:
    """The race as a table."""
    workload = done.workload
    title = f"{workload.name}: batch {workload.batch}, {workload.steps} steps, promised {workload.least_ratio:g}x"
    made = Table(title=title, title_justify="left")
    for heading in ("way", "ms a step", "x ours", "steady ms", "x ours", "first step s", "peak MiB"):
        made.add_column(heading, justify="left" if heading == "way" else "right")
    for row in rows(done):
        made.add_row(*row, style="bold" if row[0] == OURS else None)
    return made


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
