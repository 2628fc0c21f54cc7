"""Tables of races."""

from __future__ import annotations

import statistics

from rich.table import Table

from benchmarks.race import OURS, Race


def rows(done: Race) -> list[tuple[str, ...]]:
    """A row for each way: its times, absolute and in multiples of ours, and its peak memory."""
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
