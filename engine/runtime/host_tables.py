"""Tables in the host's memory, such as embeddings larger than a chip's: programs look rows up and update them in place.

The memory is the caller's, and may change between calls of a program. Neither function takes the GIL.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any, Protocol

import numpy as np

from engine.codelets.host.host_call import HostCallBlock
from engine.codelets.host.host_table import Table, TableCall, look_up_rows, subtract_rows
from engine.codelets.language.record import block
from engine.errors import HostFunctionError
from engine.host_functions import BoundFunction, HostFunction, Shapes
from engine.ir.shape import Shape
from engine.program.control_words import CallBlock


class TableMemory(Protocol):
    """The memory of a table: an array [rows, width], which may be another one in each call of a program."""

    def acquire(self) -> np.ndarray:
        """The array, C-contiguous, for a call of a program that begins; writable if programs update it."""

    def release(self) -> None:
        """Ends the use of the array."""


class HostTable:
    """A table that programs use while they run: one array for all functions of all programs that run.

    `variable` is the variable that owns the memory, if any: programs that call the functions must not use it.
    """

    def __init__(self, name: str, memory: TableMemory, variable: object = None) -> None:
        self.name, self._memory, self.variable = name, memory, variable
        self._users: set[HostFunction] = set()
        self._array: np.ndarray | None = None
        self._lock = threading.RLock()

    def begin(self, user: HostFunction) -> np.ndarray:
        """The array for a function of a program that begins. Raises the errors of the memory's `acquire`."""
        with self._lock:
            if self._array is None:
                self._array = self._memory.acquire()
            self._users.add(user)
            return self._array

    def end(self, user: HostFunction) -> None:
        """Ends the use by a function, even if that has not begun."""
        with self._lock:
            self._users.discard(user)
            if not self._users and self._array is not None:
                self._array = None
                self._memory.release()


class TableFunction(HostFunction):
    """A function on the rows of a table of `shape` [rows, width]."""

    def __init__(self, name: str, table: HostTable, shape: Shape) -> None:
        super().__init__(name)
        self.table, self.shape, self.variable = table, shape, table.variable
        self.words = np.zeros(Table.WORDS, np.int64)
        self.words[Table.COUNT], self.words[Table.WIDTH] = shape.dimensions
        self.words[Table.ROW_BYTES] = shape.dimensions[1] * shape.dtype.itemsize
        self.words[Table.CALLS] = 1

    @property
    def codelet(self) -> Any:
        """The codelet that looks up rows."""
        return look_up_rows

    def begin(self) -> None:
        """Takes the table's memory. Raises the errors of its `acquire`."""
        self.words[Table.ROWS] = self.table.begin(self).ctypes.data

    def end(self) -> None:
        """Releases the table's memory."""
        self.table.end(self)

    def bind(self, operands: Shapes, results: Shapes) -> BoundFunction:
        """The function for one call in a program, on arrays of these shapes; the first are indices."""
        return _TableCall(self, operands, results)


class LookUp(TableFunction):
    """(indices [...]) -> rows [..., width] of a table. An index outside of it ends the step with HostFunctionError."""


class Update(TableFunction):
    """(indices [...], gradients [..., width]) -> (): `table[index] -= rate * gradient` for each index, in order.

    The gradients of `calls` calls by each replica are applied together, after the last one.
    """

    def __init__(self, name: str, table: HostTable, shape: Shape, rate: float, calls: int = 1) -> None:
        super().__init__(name, table, shape)
        self._calls = calls
        wide = np.float64 if shape.dtype == np.float64 else np.float32
        self.words[Table.RATE :].view(wide)[0] = rate
        self._most = 0
        self._indices, self._gradients = np.zeros(0, np.int64), np.zeros((0, shape.dimensions[1]), shape.dtype)

    @property
    def codelet(self) -> Any:
        """The codelet that updates rows of the table's element type."""
        return subtract_rows(self.shape.element_type)

    def begin(self) -> None:
        """Takes the table's memory, and space for the gradients of an update."""
        super().begin()
        calls = self.words[Table.CALLS] = self._calls * self.replicas
        if calls > 1 and calls * self._most > len(self._indices):
            kept = int(self.words[Table.KEPT])
            indices, gradients = self._indices[:kept], self._gradients[:kept]
            self._indices = np.empty(calls * self._most, np.int64)
            self._gradients = np.empty((calls * self._most, self.shape.dimensions[1]), self.shape.dtype)
            self._indices[:kept], self._gradients[:kept] = indices, gradients
            self.words[Table.KEPT_INDICES] = self._indices.ctypes.data
            self.words[Table.KEPT_GRADIENTS] = self._gradients.ctypes.data

    def bind(self, operands: Shapes, results: Shapes) -> BoundFunction:
        """The function for one call in a program, on arrays of these shapes; the first are indices."""
        self._most = max(self._most, operands[0].elements)
        return super().bind(operands, results)

    def forget(self) -> None:
        """Drops the gradients of an update that was not completed."""
        self.words[[Table.KEPT, Table.KEPT_CALLS]] = 0


class _TableCall(BoundFunction):
    """One call of a table's codelet in a program."""

    def __init__(self, function: TableFunction, operands: Shapes, results: Shapes) -> None:
        self.codelet, self._table = function.codelet, function
        self._words = np.zeros(TableCall.WORDS, np.int64)
        self._words[TableCall.TABLE] = function.words.ctypes.data
        self._words[TableCall.COUNT] = operands[0].elements
        self._words[TableCall.INDEX_BYTES] = operands[0].dtype.itemsize
        self._words[TableCall.INDEX_SIGNED] = operands[0].dtype.kind == "i"
        super().__init__(function, 0, self._words.ctypes.data, operands, results)

    def _call(self, operands: int, results: int) -> None:
        unused = np.ones(1, np.int64)
        left = np.full(CallBlock.WORDS, unused.ctypes.data, np.int64)  # leaving a step writes to these words
        arrays = (ctypes.c_int64 * (len(self.operands) + len(self.results))).from_address(operands)
        head = HostCallBlock(
            call=left.ctypes.data, function=0, data=self.data, status=self.status, operands=len(self.operands)
        )
        parameters = block(head, list(arrays))
        self.codelet(parameters.words.ctypes.data, 0, 1, 0)

    def raise_failure(self) -> None:
        """Raises HostFunctionError for an index that is no row of the table."""
        if self.status[0]:
            table = self._table
            raise HostFunctionError(
                f"Expected indices of rows in {table.name!r}, [0, {table.shape.dimensions[0]}). Received: "
                f"{int(table.words[Table.WRONG])} at position {int(self.status[0]) - 1}. Clip them."
            )
