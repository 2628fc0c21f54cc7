"""The host's side of queues: a ring of one row for the tiles, filled from and drained to the real ring step by step.

The codelets run twice and must not take two rows: so they never see the real ring, and never have to wait.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from engine.codelets.build import Codelet
from engine.codelets.queues import (
    CONTROL_LINE,
    Ring,
    infeed_row,
    infeed_wait,
    outfeed_publish,
    outfeed_row,
    outfeed_wait,
    store_word,
)
from engine.debug.memory import TileHomes
from engine.errors import DebugError
from engine.program.program import ComputeSet, ProgramQueue
from engine.program.work.records import Records
from engine.runtime.rings import AnyRing, InfeedRing

TAKING, MAKING_SPACE = (infeed_wait, infeed_row), (outfeed_wait, outfeed_row)
HANDING_OVER = (outfeed_row, outfeed_publish)
NEVER_READ = 1 << 40
"""Rows read, for a ring of one slot that always has space."""


class HostSide:
    """The rings of a call, by the control blocks of the program's queues."""

    def __init__(self, queues: Mapping[str, ProgramQueue], rings: Mapping[str, AnyRing], memory: TileHomes) -> None:
        self._memory = memory
        self._queues = {queue.control: (queue, rings[name]) for name, queue in queues.items()}
        for queue, _ in self._queues.values():
            memory[queue.call].load(np.zeros(queue.call.shape.dimensions, np.int64))

    def before(self, compute_set: ComputeSet) -> bool:
        """Provides a row where one is taken (waits for it), space where one is appended; False without any queues.

        Raises the ring's error when it is closed.
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
        """Appends a complete row to its ring; waits for space. Raises the ring's error when it is closed.

        Raises DebugError for a row with unwritten elements.
        """
        for queue, ring in self._used(compute_set, HANDING_OVER):
            assert not isinstance(ring, InfeedRing)
            for leaf in queue.leaves:
                if leaf.shape.bytes and self._memory[leaf].written() is not None:
                    raise DebugError(
                        f"Expected compute set {compute_set.name!r} to hand over whole rows. Received: elements of "
                        f"{leaf.name!r} that nobody has written. Look at the copies between the wait and this one."
                    )
            _note_wait(ring, ring.waiting == ring.slots)
            ring.append([self._memory[leaf].value() for leaf in queue.leaves])

    def _control(self, queue: ProgramQueue, written: int, read: int) -> None:
        block = np.zeros(queue.control.shape.dimensions, np.int64)
        block[CONTROL_LINE * Ring.SLOTS] = 1
        block[CONTROL_LINE * Ring.WRITTEN], block[CONTROL_LINE * Ring.READ] = written, read
        self._memory[queue.control].load(block)

    def _used(self, compute_set: ComputeSet, codelets: tuple[Codelet, ...]) -> list[tuple[ProgramQueue, AnyRing]]:
        """The queue that a compute set works on, in a list, if it runs one of these codelets."""
        work = compute_set.work
        if not isinstance(work, Records) or work.codelet not in codelets:
            return []
        return [self._queues[work.head.ring.buffer]]


def _note_wait(ring: AnyRing, waits: bool) -> None:
    """Counts the program's waits for the host, as codelets do."""
    if waits:
        store_word(ring.address + 8 * CONTROL_LINE * Ring.WAITS, ring.device_waits + 1, 0, 0)
