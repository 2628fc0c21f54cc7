"""Input data of the steps: rows of a host array, gathered by the engine itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.errors import InternalError, StepCountError


@dataclass(frozen=True, slots=True)
class RowFeed:
    """Rows of `array` for one parameter of shape [b, ...]: step s takes rows[s*b : (s+1)*b].

    `array` is C-contiguous with the parameter's dtype and row shape; `rows` is int64, or None for the natural
    order. A parameter of rank 0 takes one row a step.
    """

    array: np.ndarray
    rows: np.ndarray | None = None

    def available_rows(self) -> int:
        return len(self.array) if self.rows is None else len(self.rows)

    def check_steps(self, number: int, steps: int, rows: int) -> None:
        """Raises StepCountError if there are fewer than `steps` times `rows` rows for parameter `number`."""
        available = self.available_rows()
        if available < steps * rows:
            raise StepCountError(
                f"Expected {steps * rows} rows for {steps} steps of parameter {number}. Received: {available}. "
                f"Run at most {available // max(rows, 1)} steps."
            )

    def check_rows(self, number: int) -> None:
        """Raises InternalError for row numbers that the array, the feed of parameter `number`, does not have."""
        rows, count = self.rows, len(self.array)
        if rows is not None and len(rows) and not (0 <= int(rows.min()) and int(rows.max()) < count):
            raise InternalError(
                f"Expected row numbers from 0 to {count - 1} for parameter {number}. "
                f"Received: {rows.min()} to {rows.max()}."
            )

    def step(self, index: int, rows_per_step: int) -> np.ndarray:
        """The rows of one step, shape [rows_per_step, ...]."""
        span = slice(index * rows_per_step, (index + 1) * rows_per_step)
        return self.array[span] if self.rows is None else self.array[self.rows[span]]
