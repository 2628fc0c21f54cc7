"""The host's side of a debug run: calls of its functions, and for each queue a ring of one row beside the real ring.

Codelets run twice and must not take two rows. So they use the ring of one row, which is filled from the real ring or
drained to it around their runs, and never have to wait.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from engine.codelets.host.queues import store_word
from engine.debug.memory import TileHomes
from engine.errors import DebugError
from engine.ir.shape import Shape
from engine.ir.value_checks import invalid_value
from engine.ops.queues import failing_element
from engine.program.control_words import CONTROL_LINE, Ring
from engine.program.program import Address, ComputeSet, Program, ProgramQueue
from engine.program.work.custom_calls import HostCall, ValueCheckWork
from engine.program.work.queues import InfeedRow, InfeedWait, OutfeedPublish, OutfeedRow, OutfeedWait, QueueWork
from engine.runtime.rings import AnyRing, InfeedRing

TAKING, MAKING_SPACE = (InfeedWait, InfeedRow), (OutfeedWait, OutfeedRow)
HANDING_OVER = (OutfeedRow, OutfeedPublish)
NEVER_READ = 1 << 40
"""The count of rows read, in a ring of one slot that always has space."""


class HostSide:
    """The rings of a call, by the control blocks of the program's queues."""

    def __init__(self, program: Program, rings: Mapping[str, AnyRing], memory: TileHomes) -> None:
        self._memory = memory
        self._queues = {queue.control: (queue, rings[name]) for name, queue in program.queues.items()}
        if program.call is not None:
            memory[program.call].load(np.zeros(program.call.shape.dimensions, np.int64))

    def before(self, compute_set: ComputeSet) -> bool:
        """Waits for a row where one is taken, and makes space where one is appended; returns False without any queues.

        Raises the ring's error when the ring is closed.
        """
        if not self._queues:
            return False
        for queue, ring in self._used(compute_set, TAKING):
            assert isinstance(ring, InfeedRing)
            _note_wait(ring, not ring.available())
            for leaf, value in zip(queue.leaves, ring.next_row(), strict=True):
                self._memory[leaf].load(value)
            self._control(queue, written=1, read=0)
        for queue, _ in self._used(compute_set, MAKING_SPACE):
            for leaf in queue.leaves:
                self._memory[leaf].forget()
            self._control(queue, written=0, read=NEVER_READ)
        return True

    def after(self, compute_set: ComputeSet) -> None:
        """Appends a complete row to its ring; waits for space. Raises the ring's error when the ring is closed.

        Raises DebugError for a row with unwritten elements.
        """
        for queue, ring in self._used(compute_set, HANDING_OVER):
            assert not isinstance(ring, InfeedRing)
            for leaf in queue.leaves:
                if leaf.shape.bytes and self._memory[leaf].written() is not None:
                    raise DebugError(
                        f"Expected compute set {compute_set.name!r} to publish whole rows. Received: elements of "
                        f"{leaf.name!r} that have not been written. Look at the copies between the wait and this one."
                    )
            _note_wait(ring, ring.waiting == ring.slots)
            ring.append([self._memory[leaf].value() for leaf in queue.leaves])

    def call(self, compute_set: ComputeSet, work: HostCall, iterations: Sequence[int]) -> None:
        """Calls a function of the host once. Raises the function's error, and DebugError for unwritten operands."""
        pairs = zip(work.operands, work.function.operands, strict=True)
        operands = [self._operand(compute_set, address, shape, iterations) for address, shape in pairs]
        results = work.function(operands)
        for address, shape, result in zip(work.results, work.function.results, results, strict=True):
            home, cells = self._memory[address.buffer], self._cells(address, shape, iterations)
            home.write(cells, result.reshape(-1).view(home.cells.dtype), 0)

    def check(self, compute_set: ComputeSet, work: ValueCheckWork, iterations: Sequence[int], step: int) -> None:
        """Checks values once. Raises InvalidValue if the check fails, and DebugError as `call` does."""
        values = self._operand(compute_set, work.operand, work.shape, iterations)
        element = failing_element(work.check, values)
        if element >= 0:
            value = values.reshape(-1)[element]
            raise invalid_value(work.check, work.shape, work.op_name, element, value, step, step + 1)

    def _operand(
        self, compute_set: ComputeSet, address: Address, shape: Shape, iterations: Sequence[int]
    ) -> np.ndarray:
        """The array at an address. Raises DebugError unless all of it has been written."""
        home, cells = self._memory[address.buffer], self._cells(address, shape, iterations)
        written = home.written()
        if written is not None and not written[cells].all():
            raise DebugError(
                f"Expected operands of compute set {compute_set.name!r} to be written. Received: unwritten "
                f"elements of {address.buffer.name!r}. Look at the compute sets before."
            )
        return home.cells[cells].view(shape.dtype).reshape(shape.dimensions)

    def _cells(self, address: Address, shape: Shape, iterations: Sequence[int]) -> np.ndarray:
        """The numbers of an array's cells in a buffer."""
        moved = 0 if address.moved is None else address.moved.values[iterations[address.moved.counter]]
        item = self._memory[address.buffer].cells.dtype.itemsize
        return np.arange(shape.bytes // item) + (address.offset + moved) // item

    def _control(self, queue: ProgramQueue, written: int, read: int) -> None:
        block = np.zeros(queue.control.shape.dimensions, np.int64)
        block[CONTROL_LINE * Ring.SLOTS] = 1
        block[CONTROL_LINE * Ring.WRITTEN], block[CONTROL_LINE * Ring.READ] = written, read
        self._memory[queue.control].load(block)

    def _used(self, compute_set: ComputeSet, kinds: tuple[type[QueueWork], ...]) -> list[tuple[ProgramQueue, AnyRing]]:
        """The queue that a compute set works on, in a list, if its work is of one of these kinds."""
        work = compute_set.work
        return [self._queues[work.ring.buffer]] if isinstance(work, kinds) else []


def _note_wait(ring: AnyRing, waits: bool) -> None:
    """Counts the program's waits for the host, as codelets do."""
    if waits:
        store_word(ring.address + 8 * CONTROL_LINE * Ring.WAITS, ring.device_waits + 1, 0, 0)
