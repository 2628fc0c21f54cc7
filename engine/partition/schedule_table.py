"""The rows of a pipeline's schedule as a table: a line for each IPU, a column for each slot."""

from __future__ import annotations

from collections.abc import Iterable

from engine.partition.schedule import Kind, Row, Schedule
from engine.shown import Shown, preformatted

WIDTH = 88
LETTERS: dict[Kind, str] = {"forward": "F", "recompute": "R", "backward": "B", "update": "U"}
BUBBLE = "."
COLOURS: dict[Kind, str] = {"forward": "#5b8bd0", "recompute": "#7fb5ac", "backward": "#d39c45", "update": "#9b7fc0"}
SLOT, LANE = 26, 22
"""Pixels of a slot, and of an IPU's lane, in the picture."""
TEXT = 'text-anchor="middle" font-size="11" font-family="sans-serif" fill="#fff"'


class ScheduleRows(list[Row], Shown):
    """A list of rows, shown as a table: F1 is the forward pass of micro-batch 1, R, B and U recomputation, backward
    pass and update, `.` a bubble. Where an IPU has several stages, F2.1 is the forward pass of stage 2.
    """

    def __init__(self, rows: Iterable[Row], title: str = "") -> None:
        super().__init__(rows)
        self.title = title

    @classmethod
    def of(cls, schedule: Schedule) -> ScheduleRows:
        """The rows of a schedule, with a title that describes it."""
        return cls(
            schedule.rows,
            f"{schedule.kind} schedule, {schedule.stages} stages on {len(schedule.ipus)} IPUs, "
            f"{schedule.micro_batches} micro-batches, {schedule.slots} slots",
        )

    def table(self, width: int | None = WIDTH) -> str:
        """The table with as many slots as fit into `width` characters; with all of them for None."""
        if not self:
            return "[]"
        ipus, slots = sorted({row.ipu for row in self}), max(row.slot for row in self) + 1
        several = len({(row.ipu, row.stage) for row in self}) > len(ipus)
        cells = {(row.ipu, row.slot): _cell(row, several) for row in self}
        head = max(len(f"IPU {ipu}") for ipu in ipus)
        column = 1 + max(map(len, cells.values()))
        shown = slots if width is None else min(slots, max(1, (width - head) // column))
        lines = [
            f"{f'IPU {ipu}':<{head}}"
            + "".join(f"{cells.get((ipu, slot), BUBBLE):>{column}}" for slot in range(shown)).rstrip()
            for ipu in ipus
        ]
        more = [f"and {slots - shown} more slots"] if shown < slots else []
        return "\n".join([*([self.title] if self.title else []), *lines, *more])

    def _repr_html_(self) -> str:
        return self._picture() + preformatted(self.table(None))

    def _picture(self) -> str:
        """The rows as an SVG element: a lane for each IPU, numbers of micro-batches in their slots."""
        ipus, drawn = sorted({row.ipu for row in self}), []
        for row in self:
            x, y = row.slot * SLOT, ipus.index(row.ipu) * LANE
            drawn.append(
                f'<rect x="{x}" y="{y}" width="{SLOT - 1}" height="{LANE - 2}" fill="{COLOURS[row.kind]}">'
                f"<title>IPU {row.ipu}, {row.kind} {_cell(row, True)}</title></rect>"
            )
            if row.micro_batch is not None:
                drawn.append(f'<text x="{x + SLOT / 2}" y="{y + 15}" {TEXT}>{row.micro_batch}</text>')
        width = SLOT * (1 + max((row.slot for row in self), default=-1))
        size = f'viewBox="0 0 {width} {LANE * len(ipus)}" width="{width}"'
        return f'<svg {size} style="max-width:100%">{"".join(drawn)}</svg>'

    __repr__ = Shown.__repr__


def _cell(row: Row, with_stage: bool) -> str:
    stage = f"{row.stage}." if with_stage and row.micro_batch is not None else ""
    return f"{LETTERS[row.kind]}{stage}{'' if row.micro_batch is None else row.micro_batch}"
