"""Control flow of the step table."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import numpy as np

from engine.program.control_words import COUNTERS
from engine.runtime.executor import COMPUTING, Column, RowKind


class Walk:
    """The rows of one step that compute, wait or branch, in order of execution.

    `iterations` are the counters of the loops. After a branch row the caller passes its predicate's value to `branch`.
    """

    def __init__(self, table: np.ndarray) -> None:
        self._table = table
        self._taken = False
        self.iterations = [0] * COUNTERS

    def branch(self, predicate: bool) -> None:
        """Sets the value of the predicate of the branch row just yielded."""
        self._taken = predicate

    def __iter__(self) -> Iterator[np.ndarray]:
        number = 0
        while number < len(self._table):
            row = self._table[number]
            kind, target = row[Column.KIND], int(row[Column.TARGET])
            number += 1
            if kind in (*COMPUTING, RowKind.SYNC):
                yield row
            elif kind == RowKind.BRANCH:
                yield row
                number = target if self._taken == bool(row[Column.TRUTH]) else number
            elif kind == RowKind.JUMP:
                number = target
            elif kind == RowKind.REPEAT:
                number = target if self._another_iteration(row) else number
            else:
                number = target if self._is_followed_now(row) else number

    def _another_iteration(self, row: np.ndarray) -> bool:
        counter = int(row[Column.PARAMETERS])
        self.iterations[counter] = (self.iterations[counter] + 1) % int(row[Column.PREDICATE])
        return self.iterations[counter] != 0

    def _is_followed_now(self, row: np.ndarray) -> bool:
        address = int(row[Column.PREDICATE]) + self.iterations[row[Column.PARAMETERS]]
        return bool(ctypes.c_int8.from_address(address).value) == bool(row[Column.TRUTH])
