"""Copies of the arrays of batches, since an iterator may reuse the memory of an earlier batch."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from keras_ext.epochs.arrays import as_array
from keras_ext.types import Nest

MOST_BYTES = 2**26
"""The largest size of one area, in bytes. An area is allocated before the number of batches is known."""


class BatchCopies:
    """Converts the arrays of up to `limit` batches as `as_array` does, to memory that no other thread writes.

    Arrays of one shape and position in their batches are contiguous, so that `joined` copies none of them again.
    """

    def __init__(self, limit: int) -> None:
        self._limit, self._left, self._column = limit, limit + 1, 0
        self._slots: dict[tuple[int, tuple[int, ...], np.dtype], Iterator[np.ndarray]] = {}

    def begin_batch(self) -> None:
        """Begins the next batch, whose arrays follow."""
        self._left -= 1
        self._column = 0

    def __call__(self, value: Nest) -> np.ndarray | None:
        """A C-contiguous array in native byte order; None for an absent optional."""
        array = as_array(value)
        if array is None:
            return None
        self._column += 1
        if self._limit == 1 or array.ndim == 0:
            return array.copy() if array is value or not array.flags.owndata else array
        key = self._column, array.shape, array.dtype
        slot = next(self._slots.get(key, iter(())), None)
        if slot is None:
            number = min(self._left, max(1, MOST_BYTES // max(1, array.nbytes)))
            self._slots[key] = iter(np.empty((number, *array.shape), array.dtype))
            slot = next(self._slots[key])
        slot[...] = array
        return slot
