"""Tables of races."""

from __future__ import annotations

from rich.table import Table

from benchmarks.race import OURS, Race

COLUMNS = {"ms a step": ("step", 3), "processor ms": ("processor", 3), "steady ms": ("steady", 3)}


def rows(done: Race) -> list[tuple[str, ...]]:
    """A row for each way, with its times, their multiples of ours and its peak memory, or why the way is missing."""
    figures = done.figures()
    made = []
    for way, each in figures.items():
        cells = [way]
        for name, digits in COLUMNS.values():
            cells += [f"{each[name]:.{digits}f}", f"{each[name] / figures[OURS][name]:.2f}"]
        made.append((*cells, f"{each['first step']:.2f}", f"{each['peak']:.0f}"))
    return [*made, *((way, reason) for way, reason in done.missing.items())]


def table(done: Race) -> Table:
    """The race as a table."""
    workload = done.workload
    title = f"{workload.name}: batch {workload.batch}, {workload.steps} steps, promised {workload.least_ratio:g}x"
    made = Table(title=title, title_justify="left")
    headings = [each for name in COLUMNS for each in (name, "x ours")]
    for heading in ("way", *headings, "first step s", "peak MiB"):
        made.add_column(heading, justify="left" if heading == "way" else "right")
    for row in rows(done):
        made.add_row(*row, style="bold" if row[0] == OURS else None)
    return made
