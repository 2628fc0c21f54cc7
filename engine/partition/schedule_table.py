"""A pipeline's schedule for reading: a line for each IPU, a column for each slot."""

from __future__ import annotations

from engine.partition.schedule import Row, Schedule

LETTERS = {"forward": "F", "recompute": "R", "backward": "B", "update": "U"}


def schedule_table(schedule: Schedule, most_slots: int | None = None) -> str:
    """The schedule as text: `F1.0` is the forward pass of stage 1 for micro-batch 0, a dot is a bubble.

    Of a schedule with more than `most_slots` slots the first ones are shown.
    """
    slots = schedule.slots if most_slots is None else min(schedule.slots, most_slots)
    cells = {(row.ipu, row.slot): _cell(row) for row in schedule.rows if row.slot < slots}
    width = max(len(cell) for cell in [*cells.values(), str(slots - 1)])
    name = max(len(f"IPU {ipu}") for ipu in schedule.ipus)
    lines = [" ".join([" " * name, *(f"{slot:>{width}}" for slot in range(slots))])]
    for ipu in schedule.ipus:
        row = (f"{cells.get((ipu, slot), '.'):>{width}}" for slot in range(slots))
        lines.append(" ".join([f"IPU {ipu}".ljust(name), *row]))
    if slots < schedule.slots:
        lines.append(f"... {schedule.slots - slots} more slots")
    return "\n".join(lines)


def _cell(row: Row) -> str:
    number = "" if row.micro_batch is None else f".{row.micro_batch}"
    return f"{LETTERS[row.kind]}{row.stage}{number}"
