"""Rings of rows between a host thread and the device, which reads and writes them while a program runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import numpy as np

from engine.errors import ConfigurationError, FeedEnded
from engine.ir.shape import Shape
from engine.program.control_words import CONTROL_LINE, Ring
from engine.runtime.buffers import ALIGNMENT, aligned_zeros
from engine.runtime.shared_words import load, store

RING_BYTES = 1 << 20
MOST_SLOTS = 1 << 14
"""Suggested bytes of a ring, and most rows."""
FIRST_NAP, LONGEST_NAP = 0.00005, 0.002
"""Seconds between polls of a ring, doubled each time."""
ENDLESS = 1 << 62
"""More rows than any program takes or appends."""


def suggested_slots(shapes: Sequence[Shape]) -> int:
    """Number of slots that keeps both sides busy: small rows need many, as the host polls only now and then."""
    row_bytes = sum(max(shape.bytes, 1) for shape in shapes)
    return max(2, min(MOST_SLOTS, RING_BYTES // max(row_bytes, 1)))


class _Ring:
    """Slots for rows of leaves, and the control block. One thread of the host at a time, and one running program.

    `address` is the address of the control block; `leaf_addresses` has the address of the slots of each leaf.
    """

    def __init__(self, shapes: Sequence[Shape], slots: int) -> None:
        if slots < 1:
            raise ConfigurationError(f"Expected a ring of at least 1 slot. Received: {slots}. Nearest: 1.")
        self.shapes = tuple(shapes)
        self.slots = slots
        self._control = aligned_zeros(8 * CONTROL_LINE * Ring.WORDS).view(np.int64)
        self._leaves = self._new_leaves()
        self.address: int = self._control.ctypes.data
        self.leaf_addresses: list[int] = [leaf.ctypes.data for leaf in self._leaves]
        self._control[CONTROL_LINE * Ring.SLOTS] = slots
        self._closed = threading.Event()
        self._error: BaseException | None = None

    def _new_leaves(self) -> list[np.ndarray]:
        """The slots of each leaf."""
        memory = [aligned_zeros(max(self.slots * shape.bytes, ALIGNMENT)) for shape in self.shapes]
        return [
            bytes_[: self.slots * shape.bytes].view(shape.dtype).reshape((self.slots, *shape.dimensions))
            for bytes_, shape in zip(memory, self.shapes, strict=True)
        ]

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return sum(shape.bytes for shape in self.shapes)

    @property
    def rows(self) -> int:
        """Number of rows that the producer has finished so far."""
        return self._load(Ring.WRITTEN)

    @property
    def device_waits(self) -> int:
        """Number of times a program waited for the host: for a row, or for space."""
        return self._load(Ring.WAITS)

    @property
    def closed(self) -> bool:
        """Whether the host has closed the ring."""
        return self._closed.is_set()

    @property
    def ended(self) -> bool:
        """Whether a program has left its step because the ring is closed."""
        return self._load(Ring.ENDED) != 0

    @property
    def error(self) -> BaseException:
        """The error raised by a program that finds the ring closed."""
        return self._error or FeedEnded(
            "Expected a queue that stays open while a program uses it. Received: one that was closed. "
            "Run fewer steps, or keep feeding and dequeuing until the program ends."
        )

    def close(self, error: BaseException | None = None) -> None:
        """Closes the ring for the host. May be called from any thread; the first call counts.

        A program that waits leaves its step, and its call raises `error`, or FeedEnded if there is none.
        """
        if not self._closed.is_set():
            self._error = error
            self._closed.set()
            self._store(Ring.CLOSED, 1)

    def begin(self) -> None:
        """Prepares the ring for a program that is about to run."""
        self._store(Ring.ENDED, 0)

    def settle(self) -> None:
        """Frees the slot of the last row that was taken: no program runs any more."""

    def _load(self, index: Ring) -> int:
        return load(self.address + 8 * CONTROL_LINE * index)

    def _store(self, index: Ring, value: int) -> None:
        store(self.address + 8 * CONTROL_LINE * index, value)

    def _nap(self, naps: int, most: float = LONGEST_NAP) -> None:
        """Sleeps, longer each time; `close` and Ctrl-C end it."""
        self._closed.wait(max(0.0, min(FIRST_NAP * 2 ** min(naps, 10), LONGEST_NAP, most)))

    def _segments(self, first: int, count: int) -> list[tuple[slice, slice]]:
        """Rows first <= i < first + count as contiguous (slots, rows)."""
        start = first % self.slots
        head = min(count, self.slots - start)
        segments = [(slice(start, start + head), slice(0, head))]
        return segments if head == count else [*segments, (slice(0, count - head), slice(head, count))]


class InfeedRing(_Ring):
    """Rows from the host to the device. Rows that a program does not take stay for the next one."""

    def __init__(self, shapes: Sequence[Shape], slots: int) -> None:
        super().__init__(shapes, slots)
        self.host_waits = 0

    def put(self, rows: Sequence[np.ndarray]) -> None:
        """Appends k rows: an array [k, ...] for each leaf. Waits while the ring is full.

        Raises ConfigurationError for other shapes or dtypes than the ring's, and the ring's error when it is closed;
        some of the rows may have been appended then.
        """
        count = self._count(rows)
        done = naps = 0
        while done < count:
            if self._closed.is_set():
                raise self.error
            fitting = min(self.space(), count - done)
            if not fitting:
                self.host_waits += naps == 0
                self._nap(naps)
                naps += 1
                continue
            naps = 0
            written = self._load(Ring.WRITTEN)
            for leaf, values in zip(self._leaves, rows, strict=True):
                for slots, segment in self._segments(written, fitting):
                    leaf[slots] = values[done + segment.start : done + segment.stop]
            self._store(Ring.WRITTEN, written + fitting)
            done += fitting

    def put_for_ever(self, rows: Sequence[np.ndarray]) -> None:
        """Fills all slots with rows that are read cyclically without end; no other rows can be put.

        Raises ConfigurationError for other shapes or dtypes than the ring's, or another number of rows than of slots.
        """
        if (count := self._count(rows)) != self.slots:
            raise ConfigurationError(f"Expected {self.slots} rows for a ring of as many slots. Received: {count}.")
        for leaf, values in zip(self._leaves, rows, strict=True):
            leaf[:] = values
        self._store(Ring.WRITTEN, ENDLESS)

    def space(self) -> int:
        """Number of rows that can be put without waiting."""
        return self.slots - (self._load(Ring.WRITTEN) - self._load(Ring.READ))

    def available(self) -> int:
        """Number of rows that no program has taken yet."""
        return self._load(Ring.WRITTEN) - self._load(Ring.TAKEN)

    def next_row(self, timeout: float | None = None) -> list[np.ndarray]:
        """Takes a row as a program would: an array for each leaf. Waits for it.

        Raises the ring's error when it is closed and empty, TimeoutError after `timeout` seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        naps = 0
        while not self.available():
            if self._closed.is_set() and not self.available():
                self._store(Ring.ENDED, 1)
                raise self.error
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"Expected a row within {timeout} seconds. Received: none.")
            self._nap(naps)
            naps += 1
        taken = self._load(Ring.TAKEN)
        row = self._row(taken % self.slots)
        self._store(Ring.TAKEN, taken + 1)
        self._store(Ring.READ, taken + 1)
        return row

    def settle(self) -> None:
        self._store(Ring.READ, self._load(Ring.TAKEN))

    def _row(self, slot: int) -> list[np.ndarray]:
        return [np.array(leaf[slot]) for leaf in self._leaves]

    def _count(self, rows: Sequence[np.ndarray]) -> int:
        given = [f"{np.asarray(r).dtype}{list(np.shape(r))}" for r in rows]
        fitting = len(rows) == len(self.shapes) and all(
            np.asarray(r).dtype == s.dtype and np.shape(r)[1:] == s.dimensions and np.ndim(r) == s.rank + 1
            for r, s in zip(rows, self.shapes, strict=False)
        )
        counts = {len(r) for r in rows} if fitting else set()
        if not fitting or len(counts) > 1:
            expected = ", ".join(f"k rows of {shape}" for shape in self.shapes)
            raise ConfigurationError(
                f"Expected {expected or 'no leaves'} for the queue. Received: {', '.join(given) or 'no leaves'}. "
                f"Feed elements of the shapes and dtypes the queue was made with."
            )
        return counts.pop() if counts else 0


class OutfeedRing(_Ring):
    """Rows from the device to the host. The device waits while the ring is full."""

    def discard(self) -> None:
        """Drops all rows from now on, so that the device never waits."""
        self._store(Ring.READ, ENDLESS)

    def take(self) -> list[np.ndarray] | None:
        """All complete rows so far, oldest first: for each leaf a copy [k, ...]; k may be 0.

        None when the ring is closed and has no more rows.
        """
        closed = self._closed.is_set()
        read = self._load(Ring.READ)
        count = max(self._load(Ring.WRITTEN) - read, 0)
        if not count and closed:
            return None
        taken = [np.empty((count, *shape.dimensions), shape.dtype) for shape in self.shapes]
        for leaf, values in zip(self._leaves, taken, strict=True):
            for slots, segment in self._segments(read, count):
                values[segment] = leaf[slots]
        if count:
            self._store(Ring.READ, read + count)
        return taken

    @property
    def waiting(self) -> int:
        """Number of rows that the device has appended and the host has not taken."""
        return max(self._load(Ring.WRITTEN) - self._load(Ring.READ), 0)

    def wait(self, timeout: float) -> bool:
        """Waits for rows, at most `timeout` seconds or until the ring is closed; whether there are any."""
        deadline = time.monotonic() + timeout
        naps = 0
        while not self.waiting and not self._closed.is_set() and (left := deadline - time.monotonic()) > 0:
            self._nap(naps, left)
            naps += 1
        return self.waiting > 0

    def append(self, row: Sequence[np.ndarray]) -> None:
        """Appends a row as a program would. Waits while the ring is full; raises its error when it is closed."""
        naps = 0
        while not self._closed.is_set() and self.waiting == self.slots:
            self._nap(naps)
            naps += 1
        if self._closed.is_set():
            self._store(Ring.ENDED, 1)
            raise self.error
        written = self._load(Ring.WRITTEN)
        for leaf, value in zip(self._leaves, row, strict=True):
            leaf[written % self.slots] = value
        self._store(Ring.WRITTEN, written + 1)


AnyRing = InfeedRing | OutfeedRing
