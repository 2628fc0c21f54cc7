"""Sums over the processes of one machine in the middle of a step, by a codelet through shared memory.

`SharedRows` is one process's view of that memory. Stores must become visible to other processes in program order, as
they do on x86. The protocol is described in `engine.codelets.threads.process_sum`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from engine.codelets.threads.process_sum import Header, Rows, SumCall, sum_over_processes
from engine.codelets.threads.waiting import pauses_per_second
from engine.host_functions import BoundFunction, PythonCall, PythonFunction, Shapes
from engine.machine_code.abi import c_function


class SharedRows:
    """The rows of all processes, uint8 [size, bytes], the same memory in each; all zeros before the first call.

    `words` is the block that `Rows` describes.
    """

    def __init__(self, rows: np.ndarray, rank: int) -> None:
        self.rank, self.size = rank, len(rows)
        self._headers = rows[:, : 8 * Header.WORDS].view(np.int64)
        values = rows[:, 8 * Header.WORDS :]
        self._halves = [half.view(np.float32) for half in np.split(values, 2, axis=1)]
        self._memory = rows
        self.words = np.zeros(Rows.WORDS, np.int64)
        self.words[Rows.FIRST], self.words[Rows.ROW_BYTES] = rows.ctypes.data, rows.strides[0]
        self.words[Rows.HALF_BYTES] = values.shape[1] // 2
        self.words[Rows.RANK], self.words[Rows.SIZE] = rank, self.size
        self.words[Rows.CLOCK] = c_function("clock_gettime")

    def wait_for(self, seconds: float) -> None:
        """Sets how long codelets wait for other processes."""
        self.words[Rows.PAUSES] = max(1, int(seconds * pauses_per_second()))

    def fits(self, shapes: Shapes) -> bool:
        """Whether each process may read arrays of these shapes of all others; larger ones are summed in parts."""
        size = sum(shape.bytes for shape in shapes) * max(1, self.size - 1)
        return all(shape.element_type == "f32" for shape in shapes) and size <= int(self.words[Rows.HALF_BYTES])

    def publish(self, digest: int, arrays: Sequence[np.ndarray] = ()) -> None:
        """Publishes the next call, with values; has no effect if the codelet has published it."""
        number = self._next
        if self._headers[self.rank, Header.PUBLISHED] < number:
            position, own = 0, self._halves[number & 1][self.rank]
            for array in arrays:
                own[position : position + array.size] = array.reshape(-1)
                position += array.size
            self._headers[self.rank, Header.DIGESTS + (number & 1)] = digest
            self._headers[self.rank, Header.PUBLISHED] = number

    def all_published(self) -> bool:
        """Whether all processes have published the call."""
        return bool((self._headers[:, Header.PUBLISHED] >= self._next).all())

    def is_same(self, digest: int) -> bool:
        """Whether the calls that all have published have the same digest."""
        return bool((self._headers[:, Header.DIGESTS + (self._next & 1)] == digest).all())

    def sums(self, count: int) -> np.ndarray:
        """The sum of the rows' first values, in the order of ranks."""
        return functools.reduce(np.add, self._halves[self._next & 1][:, :count])

    def complete(self) -> None:
        """Ends the call."""
        self.words[Rows.CALLS] += 1

    def leave_to_host(self) -> None:
        """Lets no codelet make a call from now on: one has failed."""
        self.words[Rows.FAILED] = 1

    def taken_counts(self) -> tuple[float, int]:
        """The seconds that codelets have spent in calls since the last time, and the bytes of their values."""
        nanoseconds, count = self.words[[Rows.NANOSECONDS, Rows.BYTES]].tolist()
        self.words[[Rows.NANOSECONDS, Rows.BYTES]] = 0
        return nanoseconds / 1e9, count

    @property
    def _next(self) -> int:
        return int(self.words[Rows.CALLS]) + 1


class ProcessSum(PythonFunction):
    """(arrays) -> their sums over processes; a codelet sums arrays that fit into `rows`.

    `callable` sums larger arrays, and `continued` arrays that fit but that the codelet has not summed. `digest_of`
    returns the digest of a call for a number of values. `follow` is called after each program.
    """

    def __init__(
        self,
        name: str,
        callable: Callable[..., Sequence[Any]],
        continued: Callable[..., Sequence[Any]],
        rows: SharedRows,
        digest_of: Callable[[int], int],
        follow: Callable[[], None],
    ) -> None:
        super().__init__(name, callable)
        self.continued, self.rows, self.digest_of, self._follow = continued, rows, digest_of, follow

    def end(self) -> None:
        """Calls `follow` after a call of a program with this function."""
        self._follow()

    def bind(self, operands: Shapes, results: Shapes) -> BoundFunction:
        """The function for one call in a program, on arrays of these shapes."""
        fits = self.rows.fits(operands)
        return _ProcessSumCall(self, operands, results) if fits else super().bind(operands, results)


class _ProcessSumCall(PythonCall):
    codelet = sum_over_processes

    def __init__(self, function: ProcessSum, operands: Shapes, results: Shapes) -> None:
        super().__init__(PythonFunction(function.name, function.continued), operands, results)
        self.function = function
        counts = [shape.elements for shape in operands]
        head = [function.rows.words.ctypes.data, function.digest_of(sum(counts)), 4 * sum(counts)]
        assert len(head) == SumCall.WORDS
        self._words = np.array([*head, *counts], np.int64)
        self.data = self._words.ctypes.data
