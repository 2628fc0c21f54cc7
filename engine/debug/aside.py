"""Memory that belongs to no tile: hidden states of random numbers, and counts of floating-point exceptions.

Compute sets run twice, but a hidden state must advance only once, and an exception must count only once.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import numpy as np

from engine.ops.generators import WORDS
from engine.program.program import Buffer, ComputeSet, ExceptionRecord
from engine.program.work.random import DrawWork


class Aside:
    """State of a program beside its buffers. `counts` is the memory of its record of exceptions, if it has one."""

    def __init__(self, record: ExceptionRecord | None, counts: np.ndarray | None) -> None:
        self._record = None if record is None or counts is None else record.buffer
        self._counts = np.zeros(0, np.int64) if counts is None else counts.view(np.int64)
        self._stop = np.zeros(1, np.int64)
        self._spare = np.zeros_like(self._counts)
        if record is not None and counts is not None:
            self._spare[list(record.stops)] = self._stop.ctypes.data

    def has(self, buffer: Buffer) -> bool:
        """Whether a buffer is the record of exceptions."""
        return buffer is self._record

    def address(self, counting: bool) -> int:
        """The address at which exceptions are counted; of a spare record unless `counting`."""
        return int((self._counts if counting else self._spare).ctypes.data)

    @staticmethod
    def hidden(compute_set: ComputeSet) -> Iterator[np.ndarray]:
        """The hidden states that a compute set advances, int64 [3] each."""
        if isinstance(compute_set.work, DrawWork):
            words = ctypes.c_int64 * WORDS
            yield np.ctypeslib.as_array(words.from_address(compute_set.work.state.address))
