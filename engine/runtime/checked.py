"""Calls of a program that detects floating-point exceptions: these raise an error and restore the variables."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.errors import FloatingPointException
from engine.ir.floating_point import EXCEPTIONS
from engine.ir.shape import Shape
from engine.program.program import Buffer, ExceptionRecord, Program
from engine.runtime.buffers import DeviceBuffer
from engine.runtime.exceptions import exception
from engine.runtime.executable import Executable, Progress
from engine.runtime.executor import State
from engine.runtime.feeds import RowFeed
from engine.runtime.workers import completed_steps


class CheckedExecutable(Executable):
    """An executable that detects the exceptions of `Program.exception_names`, if there are any."""

    def __init__(self, program: Program, progress: Progress | None = None) -> None:
        super().__init__(program, progress)
        record = self._running.exceptions or ExceptionRecord(Buffer("none", Shape("s64", (0,))), (), ())
        self._origins, self._stops = [origin for _, origin in record.counters], list(record.stops)
        memory = self._constants.get(record.buffer)
        self._record = np.zeros(1, np.int64) if memory is None else memory.view(np.int64)
        counters = [word + kind for word, _ in record.counters for kind in range(len(EXCEPTIONS))]
        self._counters = np.array(counters, np.intp)
        written = {span.buffer for each in program.compute_sets for span in each.writes if counters}
        self._written = [k for k, n in enumerate(sorted(program.variables)) if program.variables[n] in written]
        self._saved: dict[int, np.ndarray] = {}
        self._state = np.zeros(0, np.int64)

    def run(
        self, steps: int, feeds: list[RowFeed], variables: list[DeviceBuffer], *arguments: Any, **named: Any
    ) -> list[np.ndarray]:
        """Runs like `Executable.run`.

        Raises FloatingPointException after the step in which an operation raised an exception that is detected; the
        variables then have their values from before the call. Rows that queues have taken or passed on are lost.
        """
        for number in self._written:
            self._saved[number] = variables[number].read_into(self._saved.get(number))
        self._record[:] = 0
        results = super().run(steps, feeds, variables, *arguments, **named)
        if self._counters.size and self._record[self._counters].any():
            for number in self._written:
                variables[number].write(self._saved[number])
            raise self._error(steps)
        return results

    def _workspace_for(self, workers: int) -> tuple[np.ndarray, np.ndarray]:
        scratch, self._state = super()._workspace_for(workers)
        self._record[self._stops] = self._state.ctypes.data + 8 * State.STOP
        return scratch, self._state

    def _error(self, steps: int) -> FloatingPointException:
        counts = self._record[self._counters].reshape(-1, len(EXCEPTIONS))
        first = int(np.flatnonzero(counts.any(axis=1))[0])
        kind = int(np.flatnonzero(counts[first])[0])
        origin = self._origins[first]
        elements = int(counts[first, kind])
        elements = min(elements, origin.elements) if origin.elements else elements
        return exception(EXCEPTIONS[kind], origin, elements, max(completed_steps(self._state) - 1, 0), steps)
