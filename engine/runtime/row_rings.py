"""Rings of an infeed whose rows the device reads in place, in the host's arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from engine.codelets.host.queues import RowSlot
from engine.errors import ConfigurationError
from engine.ir.shape import Shape
from engine.program.control_words import CONTROL_LINE, Ring
from engine.runtime.rings import InfeedRing


class RowRing(InfeedRing):
    """Each row of leaf k consists of `parts[k]` equal parts of `arrays`, which must not change.

    Raises ConfigurationError for a leaf that does not divide into its parts.
    """

    def __init__(self, shapes: Sequence[Shape], parts: Sequence[int], arrays: Sequence[np.ndarray], slots: int) -> None:
        if any(
            count < 1 or not shape.bytes or shape.elements % count for shape, count in zip(shapes, parts, strict=True)
        ):
            raise ConfigurationError(
                f"Expected leaves that divide into equal parts of at least one element. "
                f"Received: {list(parts)} parts of ({', '.join(map(str, shapes))})."
            )
        self._parts, self._arrays = tuple(parts), tuple(arrays)
        super().__init__(shapes, slots)
        self._control[CONTROL_LINE * Ring.SLOTS + 1] = 1
        self.leaf_addresses = [rows.ctypes.data for rows in self._rows]

    def _new_leaves(self) -> list[np.ndarray]:
        """The addresses of the parts and their bytes, for each leaf; the slots of a leaf point to them."""
        addresses = [np.zeros((self.slots, count), np.int64) for count in self._parts]
        self._rows = [np.zeros((self.slots, RowSlot.WORDS), np.int64) for _ in self._parts]
        for rows, table in zip(self._rows, addresses, strict=True):
            rows[:, RowSlot.PARTS] = table.ctypes.data + table.strides[0] * np.arange(self.slots)
        sizes = [rows[:, RowSlot.BYTES] for rows in self._rows]
        return [each for pair in zip(addresses, sizes, strict=True) for each in pair]

    def put(self, rows: Sequence[np.ndarray]) -> None:
        """Appends k rows: for each leaf the addresses of the parts, int64 [k, parts]. Waits while the ring is full.

        Parts that follow one another are copied as one. Raises the ring's error when it is closed.
        """
        described: list[np.ndarray] = []
        for shape, addresses in zip(self.shapes, rows, strict=True):
            part = shape.bytes // addresses.shape[1]
            adjoining = (addresses[:, 1:] - addresses[:, :-1] == part).all(axis=1)
            described += [addresses, np.where(adjoining, shape.bytes, part)]
        super().put(described)

    def _row(self, slot: int) -> list[np.ndarray]:
        row = []
        for shape, (addresses, sizes) in zip(self.shapes, zip(*[iter(self._leaves)] * 2, strict=True), strict=True):
            size = int(sizes[slot])
            parts = (ctypes.string_at(int(a), size) for a in addresses[slot, : shape.bytes // size])
            row.append(np.frombuffer(bytearray(b"".join(parts)), shape.dtype).reshape(shape.dimensions))
        return row

    def _count(self, rows: Sequence[np.ndarray]) -> int:
        return len(rows[0])
