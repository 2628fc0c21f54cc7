"""The host's endpoint of an outfeed: received rows, all of them or the last one."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from engine.ir.device_operations import QueueSignature
from engine.runtime.outfeed_collector import collector
from ipu._internal.queues.registry import forget, register, remember
from ipu._internal.queues.synthetic import is_synthetic

if TYPE_CHECKING:
    from engine.runtime.rings import OutfeedRing

logger = logging.getLogger("ipu")
Rows = list[np.ndarray]
"""An array [k, ...] for each leaf."""


class OutfeedEndpoint:
    """Rows that programs have enqueued and no caller has taken yet; only the last of them if `last_only`."""

    _may_be_synthetic = True
    puts_replicas_together = True
    """Whether rows of replicas that run one after the other are stacked into one."""

    def __init__(self, name: str | None, last_only: bool, depth: int) -> None:
        self._last_only, self._depth = last_only, depth
        self._ring: OutfeedRing | None = None
        self._chunks: deque[Rows] = deque()
        self._running = 0
        self._in_sequence = 1
        self._rest: Rows | None = None
        self._lock = threading.RLock()
        self._idle = threading.Condition(self._lock)
        self.executed = False
        self.name = register(self, "outfeed", name)

    @property
    def row_shapes(self) -> list[tuple[int, ...]] | None:
        """The shape of each leaf in one row, with replicas; None before the first program."""
        if self._ring is None:
            return None
        replicas = (self._in_sequence,) if self._in_sequence > 1 else ()
        return [(*replicas, *shape.dimensions) for shape in self._ring.shapes]

    def begin(self, signature: QueueSignature, replicas: int, sequential: int = 1) -> OutfeedRing:
        """The ring, emptied from now on; rows of `sequential` replicas come one after the other.

        Raises FailedPreconditionError for rows of other shapes or replicas than before, or while a program runs.
        """
        with self._lock:
            remember(self)
            if self._ring is None:
                # The engine loads Numba, which takes long: imported only for a program.
                from engine.runtime.rings import OutfeedRing, suggested_slots

                self._ring = OutfeedRing(signature.shapes, max(self._depth, suggested_slots(signature.shapes)))
                if self._may_be_synthetic and is_synthetic("outfeed"):
                    self._ring.discard()
                self._in_sequence = sequential
            if self._ring.shapes != tuple(signature.shapes) or self._in_sequence != sequential:
                raise tf.errors.FailedPreconditionError(
                    None,
                    None,
                    f"Expected all programs to enqueue rows of {_listed(self._ring.shapes)} of {self._in_sequence} "
                    f"replicas in turn to outfeed queue {self.name!r}. Received: {_listed(signature.shapes)} from a "
                    f"program of {max(replicas, sequential)} replicas. Make another queue for it, or delete this one "
                    f"first.",
                )
            if self._running:
                raise tf.errors.FailedPreconditionError(
                    None, None, f"Expected one program at a time with outfeed queue {self.name!r}. Received: a second."
                )
            self._running += 1
            self._rest = None
            self.executed = True
        collector.watch(self)
        return self._ring

    def end(self) -> None:
        """Takes the remaining rows of the ring at the end of the program, and raises the error of taking them."""
        collector.leave(self)
        with self._lock:
            ring = self._ring
            self.drain()
            self._running -= 1
            if self._rest is not None:
                logger.warning(
                    "Outfeed queue %r: rows of the last step are left out: only some of %d replicas ran it.",
                    self.name,
                    self._in_sequence,
                )
                self._rest = None
            self._idle.notify_all()
            if ring is not None and ring.closed and not ring.ended:  # the program has not seen it
                raise ring.error

    def wait_for_program(self) -> None:
        """Waits until no program that enqueues to the queue runs."""
        with self._lock:
            self._idle.wait_for(lambda: not self._running)

    def drain(self) -> float:
        """Empties the ring; returns the fraction of it that was full, 0 to 1."""
        with self._lock:
            if self._ring is None or not (waiting := self._ring.waiting):
                return 0.0
            try:
                taken = self._ring.take()
                if taken is not None:
                    self._received(taken)
            except BaseException as error:
                # This may be the collector's thread: the program's run raises the error.
                self._ring.close(error)
            return waiting / self._ring.slots

    def fail(self, error: BaseException) -> None:
        """Makes the program that enqueues, and later ones until the queue is deleted, raise this error."""
        if self._ring is not None:
            self._ring.close(error)

    def _of_replicas(self, rows: Rows) -> Rows | None:
        """Stacks rows of single replicas to [k, replicas, ...]; None until the first is complete."""
        if self._rest is not None:
            rows = [np.concatenate(leaves) for leaves in zip(self._rest, rows, strict=True)]
        whole = len(rows[0]) // self._in_sequence * self._in_sequence
        self._rest = [leaf[whole:].copy() for leaf in rows] if whole < len(rows[0]) else None
        return [leaf[:whole].reshape(-1, self._in_sequence, *leaf.shape[1:]) for leaf in rows] if whole else None

    def _received(self, rows: Rows) -> None:
        if self._in_sequence > 1 and self.puts_replicas_together:
            complete = self._of_replicas(rows)
            if complete is None:
                return
            rows = complete
        if self._last_only:
            self._chunks.clear()
            rows = [leaf[-1:].copy() for leaf in rows]
        self._chunks.append(rows)

    def take_all(self) -> Rows | None:
        """All rows received so far, oldest first; None if there are none."""
        with self._lock:
            self.drain()
            chunks, self._chunks = list(self._chunks), deque()
        if len(chunks) < 2:
            return chunks[0] if chunks else None
        return [np.concatenate(leaves) for leaves in zip(*chunks, strict=True)]

    def take_one(self) -> Rows | None:
        """The oldest row, an array for each leaf; None if there is none."""
        with self._lock:
            if not self._chunks:
                self.drain()
            if not self._chunks:
                return None
            oldest = self._chunks[0]
            row = [leaf[0] for leaf in oldest]
            if len(oldest[0]) > 1:
                self._chunks[0] = [leaf[1:] for leaf in oldest]
            else:
                self._chunks.popleft()
            return row

    def delete(self) -> None:
        """Drops rows and shapes; programs may use the queue again. Raises FailedPreconditionError while one runs."""
        with self._lock:
            if self._running:
                raise tf.errors.FailedPreconditionError(
                    None, None, f"Expected no program to use outfeed queue {self.name!r}. Received: delete in a run."
                )
            self._ring, self.executed = None, False
            self._chunks.clear()
            forget(self)


def _listed(shapes: Sequence[object]) -> str:
    return ", ".join(str(shape) for shape in shapes) or "no leaves"
