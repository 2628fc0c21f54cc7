"""Elements of an infeed that consist of rows of arrays, which the device reads where they lie."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf
from tensorflow.python.framework.ops import EagerTensor

from engine.ir.shape import Shape
from ipu._internal.queues.feeding import Feeding, end_of_dataset
from ipu._internal.queues.row_sequences import RowSequence, row_sequence

if TYPE_CHECKING:
    from engine.runtime.rings import InfeedRing

AT_ONCE, MOST_SLOTS, TABLE_BYTES = 64, 1024, 1 << 20
"""Elements located at a time; most slots of a ring, and bytes of its addresses. Chosen by hand."""


class RowElements:
    """The elements of `sequence`, one after the other; `tensors` are the values of its tensors."""

    def __init__(self, sequence: RowSequence, tensors: Sequence[tf.Tensor], shapes: Sequence[Shape]) -> None:
        self._sequence, self._shapes, self._taken = sequence, shapes, 0
        self._arrays = [np.asarray(tensor._numpy()) for tensor in tensors]  # scalars are not arrays
        self._addresses = [array.ctypes.data for array in self._arrays]

    def new_ring(self, slots: int) -> InfeedRing:
        """A ring for the elements, of at least so many slots: to locate rows ahead has no visible effect."""
        # The engine loads Numba, which takes long: imported only for a program.
        from engine.runtime.row_rings import RowRing

        parts = self._sequence.parts
        return RowRing(self._shapes, parts, self._arrays, max(slots, min(MOST_SLOTS, TABLE_BYTES // (8 * sum(parts)))))

    def feeding(self, ring: InfeedRing, running: threading.Event, ahead: bool) -> Feeding:
        """The work of the thread that fills the ring."""
        return _RowFeeding(self, ring, running, ahead)

    def take(self, limit: int) -> list[np.ndarray]:
        """The addresses of the rows of up to `limit` elements, [n, parts] for each leaf; of none at the end."""
        numbers = np.arange(self._taken, min(self._taken + limit, self._sequence.length))
        self._taken += len(numbers)
        return self._sequence.locate(self._addresses, numbers)


class _RowFeeding(Feeding):
    def __init__(self, elements: RowElements, ring: InfeedRing, running: threading.Event, ahead: bool) -> None:
        super().__init__(ring, running, ahead)
        self._elements = elements

    def _feed(self) -> None:
        rows = self._elements.take(min(self._ring.space(), AT_ONCE) if self._ahead else 1)
        if not len(rows[0]):
            self._ring.close(end_of_dataset())
            return
        try:
            self._ring.put(rows)
        except Exception as error:
            # A ring closed meanwhile stays closed; otherwise the program's run raises this.
            self._ring.close(error)


def row_elements(dataset: tf.data.Dataset, shapes: Sequence[Shape]) -> RowElements | None:
    """The elements of a data set of eager tensors; None if they are not rows of tensors."""
    sequence = row_sequence(dataset)
    if sequence is None or not all(isinstance(tensor, EagerTensor) for tensor in sequence.tensors):
        return None
    return RowElements(sequence, sequence.tensors, shapes)
