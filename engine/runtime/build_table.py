"""The step table of a program for a number of workers: its rows in order, control flow by row numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from engine.program.program import Buffer, ComputeSet, Mark, PerIteration
from engine.program.syncs import Sync, ranges_of, syncs
from engine.runtime.executor import (
    CONTROL_FLOW,
    PARTS,
    Column,
    RowKind,
    claimed_row,
    compute_row,
    control_row,
    step_table,
)


@dataclass(eq=False)
class TableBuilder:
    """Builds the step table of `sets` and `marks`; `work` has the addresses of codelet and parameters of each set."""

    sets: Sequence[ComputeSet]
    work: Sequence[tuple[int, int]]
    marks: Sequence[Mark]
    workers: int
    location: Callable[[Buffer], tuple[int, int]]
    rows: list[list[int]] = field(default_factory=list)
    labels: dict[int, int] = field(default_factory=dict)
    preds: dict[PerIteration, np.ndarray] = field(default_factory=dict)
    """Preds for each iteration of a loop, int8; rows refer to them by address."""

    def build(self) -> np.ndarray:
        """Returns the table; `claims` then holds the words of parts that workers claim, to be 0 before each call."""
        waits, free = syncs(self.sets, self.workers, self.location, self.marks)
        at_position: dict[int, list[Mark]] = {mark.position: [] for mark in self.marks}
        for mark in self.marks:
            at_position[mark.position].append(mark)
        self.claims = np.zeros(sum(each.claimed for each in self.sets) * PARTS * self.workers, np.int64)
        words = awaited = self.claims.ctypes.data
        for at, compute_set in enumerate(self.sets):
            self._add_marks(at_position.get(at, []), free)
            if waits[at] == Sync.BARRIER:
                self.rows.append(control_row(RowKind.SYNC, self.workers))
            row = compute_row(*self.work[at], ranges_of(compute_set, self.workers))
            if compute_set.claimed and self.workers > 1:
                parts = 1 if compute_set.one_worker else PARTS
                row = claimed_row(row, words, awaited if waits[at] == Sync.CLAIMED else words, parts)
                awaited = words if waits[at] else awaited
                words += self.claims.itemsize * parts * self.workers
            self.rows.append(row)
        self._add_marks(at_position.get(len(self.sets), []), free)
        for row in self.rows:
            if row[Column.KIND] in CONTROL_FLOW:
                row[Column.TARGET] = self.labels[row[Column.TARGET]]
        return step_table(self.rows, self.workers)

    def _add_marks(self, marks: Sequence[Mark], free: set[Mark]) -> None:
        """Control flow rows, with labels in place of row numbers for now.

        A sync precedes the first row. Another one precedes the next jump or branch after a branch or its target,
        because a slow worker may still test the predicate that the others have followed. `free` marks need no sync.
        """
        met = False
        rows, workers = self.rows, self.workers
        for mark in marks:
            if not met and workers > 1 and mark not in free:
                rows.append(control_row(RowKind.SYNC, workers))
            met = mark.kind in ("jump", "leave")
            if mark.kind == "label":
                self.labels[mark.label] = len(rows)
            elif mark.kind == "leave":
                self.labels[-len(rows)] = len(rows) + 1
                rows.append(control_row(RowKind.JUMP, workers, -len(rows), when=True))
            elif mark.kind == "repeat":
                rows.append(control_row(RowKind.REPEAT, workers, mark.label, mark.iterations, mark.when, mark.counter))
            elif mark.known is not None:
                preds = self.preds.setdefault(mark.known, np.array(mark.known.values, np.int8)).ctypes.data
                rows.append(control_row(RowKind.ITERATION, workers, mark.label, preds, mark.when, mark.known.counter))
            elif mark.predicate is None:
                rows.append(control_row(RowKind.JUMP, workers, mark.label, when=mark.when))
            else:
                rows.append(
                    control_row(RowKind.BRANCH, workers, mark.label, self.location(mark.predicate)[0], mark.when)
                )
