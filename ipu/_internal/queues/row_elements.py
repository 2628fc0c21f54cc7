"""Elements of an infeed that consist of rows of arrays, which the device reads in place."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf
from tensorflow.python.data.ops import iterator_ops
from tensorflow.python.eager import context
from tensorflow.python.framework.ops import EagerTensor

from engine.ir.shape import Shape
from ipu._internal.queues.autotuning import without_idle_tuner
from ipu._internal.queues.feeding import FeederWork, end_of_dataset
from ipu._internal.queues.row_sequences import RowSequence, row_sequence
from ipu._internal.queues.shuffled_rows import numbered

if TYPE_CHECKING:
    from engine.runtime.rings import InfeedRing

AT_ONCE, MOST_SLOTS, TABLE_BYTES = 64, 1024, 1 << 20
"""Elements located at a time, the most slots of a ring, and the most bytes of its addresses."""


class RowElements:
    """The elements of `sequence`, one after the other; `tensors` are the values of its tensors.

    With a data set of `numbers`, int64 [...], each element consists of the sequence's elements of these numbers.
    """

    def __init__(
        self,
        sequence: RowSequence,
        tensors: Sequence[tf.Tensor],
        shapes: Sequence[Shape],
        numbers: tf.data.Dataset | None = None,
    ) -> None:
        self._sequence, self._shapes, self._numbers = sequence, shapes, numbers
        count = 1 if numbers is None else numbers.element_spec.shape.num_elements()
        self._parts = [count * each for each in sequence.parts]
        self._arrays = [np.asarray(tensor._numpy()) for tensor in tensors]  # scalars are not arrays
        self._addresses = [array.ctypes.data for array in self._arrays]

    def new_ring(self, slots: int) -> InfeedRing:
        """Makes a ring for the elements, of at least `slots` slots: locating rows ahead has no visible effect."""
        # The engine loads Numba, which takes long: imported only for a program.
        from engine.runtime.row_rings import RowRing

        most = min(MOST_SLOTS, TABLE_BYTES // (8 * sum(self._parts)))
        return RowRing(self._shapes, self._parts, self._arrays, max(slots, most))

    def feeding(self, ring: InfeedRing, running: threading.Event, ahead: bool) -> FeederWork:
        """The work of the thread that fills the ring."""
        return _RowFeeding(self.blocks(min(ring.slots, AT_ONCE) if ahead else 1), ring, running, ahead)

    def blocks(self, size: int) -> Iterator[list[np.ndarray]]:
        """The addresses of the rows of `size` elements, or fewer at the end, [n, parts] for each leaf."""
        for numbers in self._blocks_of_numbers(size):
            rows = self._sequence.locate(self._addresses, numbers.reshape(-1))
            yield [each.reshape(len(numbers), parts) for each, parts in zip(rows, self._parts, strict=True)]

    def _blocks_of_numbers(self, size: int) -> Iterator[np.ndarray]:
        if self._numbers is None:
            length = self._sequence.length
            return (np.arange(first, min(first + size, length)) for first in range(0, length, size))
        with tf.device("/device:CPU:0"), context.eager_mode():
            # Not iter(dataset), which gives an IPUOwnedIterator in the strategy's scope.
            iterator = iterator_ops.OwnedIterator(without_idle_tuner(self._numbers).batch(size))
        return (block.numpy() for block in iterator)


class _RowFeeding(FeederWork):
    def __init__(self, blocks: Iterator[list[np.ndarray]], ring: InfeedRing, running: threading.Event, ahead: bool):
        super().__init__(ring, running, ahead)
        self._blocks = blocks
        self._rest: list[np.ndarray] = [np.empty((0, 0))]

    def _feed(self) -> None:
        try:
            if not len(self._rest[0]):
                self._rest = next(self._blocks)
            fitting = self._ring.space()
            self._ring.put([each[:fitting] for each in self._rest])
            self._rest = [each[fitting:] for each in self._rest]
        except StopIteration:
            self._ring.close(end_of_dataset())
        except Exception as error:
            # A ring closed meanwhile stays closed; otherwise the program's run raises this.
            self._ring.close(error)


Rows = tuple[RowSequence, tf.data.Dataset | None]


def rows_of(dataset: tf.data.Dataset) -> Rows | None:
    """The sequence and the row numbers of a data set that consists of RowElements; None for any other."""
    sequence = row_sequence(dataset)
    return numbered(dataset) if sequence is None else (sequence, None)


def row_elements(dataset: tf.data.Dataset, shapes: Sequence[Shape]) -> RowElements | None:
    """The elements of a data set of eager tensors; None if they are not rows of tensors."""
    with tf.device("/device:CPU:0"):
        rows = rows_of(dataset)
    if rows is None or not all(isinstance(tensor, EagerTensor) for tensor in rows[0].tensors):
        return None
    sequence, numbers = rows
    return RowElements(sequence, sequence.tensors, shapes, numbers)
