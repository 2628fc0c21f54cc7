"""Elements of an infeed as tf.data's iterator gives them."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf
from tensorflow.python.data.ops import iterator_ops
from tensorflow.python.eager import context
from tensorflow.python.ops import gen_dataset_ops

from engine.ir.shape import Shape
from ipu._internal.queues.autotuning import without_idle_tuner
from ipu._internal.queues.batching import is_harmless
from ipu._internal.queues.feeding import FeederWork, end_of_dataset

if TYPE_CHECKING:
    from engine.runtime.rings import InfeedRing

AT_ONCE = 32
"""Maximum number of elements batched before they go into the ring: by tf.data if that has no visible effect."""
SMALL_BYTES, MOST_BYTES_AT_ONCE = 1 << 14, 1 << 19
"""Maximum bytes of an element that is batched here, and of a batch of tf.data."""
LONGEST_BATCHING = 0.005
"""Seconds after which elements no longer wait for more from a data set that delays them."""


class DatasetElements:
    """A pass over `dataset`, of which tf.data batches up to `depth` elements if that has no visible effect."""

    def __init__(self, dataset: tf.data.Dataset, shapes: Sequence[Shape], depth: int, ahead: bool) -> None:
        size = sum(shape.bytes for shape in shapes)
        most = max(1, min(AT_ONCE, depth, MOST_BYTES_AT_ONCE // max(size, 1)))
        together = most if ahead and is_harmless(dataset) else 1
        self.batched, self._shapes = together > 1, shapes
        with tf.device("/device:CPU:0"), context.eager_mode():
            quiet = without_idle_tuner(dataset)
            # Not iter(dataset), which gives an IPUOwnedIterator in the strategy's scope.
            self._iterator = iterator_ops.OwnedIterator(quiet.batch(together) if self.batched else quiet)

    def new_ring(self, slots: int) -> InfeedRing:
        """A ring for the elements."""
        # The engine loads Numba, which takes long: imported only for a program.
        from engine.runtime.rings import InfeedRing

        return InfeedRing(self._shapes, slots)

    def feeding(self, ring: InfeedRing, running: threading.Event, ahead: bool) -> FeederWork:
        """The work of the thread that fills the ring."""
        return _DatasetFeeding(self, ring, running, ahead)

    def next(self) -> list[np.ndarray]:
        """The leaves of the next element, or of several if they are `batched`. Raises OutOfRangeError at the end."""
        iterator = self._iterator
        tensors = gen_dataset_ops.iterator_get_next(
            iterator._iterator_resource,
            output_types=iterator._flat_output_types,
            output_shapes=iterator._flat_output_shapes,
        )
        return [tensor._numpy() for tensor in tensors]


class _DatasetFeeding(FeederWork):
    def __init__(self, elements: DatasetElements, ring: InfeedRing, running: threading.Event, ahead: bool) -> None:
        super().__init__(ring, running, ahead)
        self._elements = elements
        self._several = AT_ONCE if ring.row_bytes <= SMALL_BYTES and not elements.batched and ahead else 1
        self._rows: list[list[np.ndarray]] = []
        self._lock = threading.Lock()  # of `_rows`, and of the rows in the ring

    def _run(self) -> None:
        if self._several > 1:
            flush = partial(self._guarded, self._flush_before_blocked)
            threading.Thread(target=flush, name="ipu-infeed-flush", daemon=True).start()
        super()._run()

    def _feed(self) -> None:
        error: BaseException | None = None
        for _ in range(min(self._ring.space(), self._several)):
            try:
                row = self._elements.next()
                with self._lock:
                    self._rows.append(row)
            except tf.errors.OutOfRangeError:
                error = end_of_dataset()
            except BaseException as raised:
                error = raised
            if error is not None or self._starving():
                break
        self._flush()
        if error is not None:
            self._ring.close(error)

    def _flush_before_blocked(self) -> None:
        """Gives a waiting program the elements read so far when the data set delays the next one."""
        seen: list[list[np.ndarray]] = []
        while not self._ring.closed:
            self._running.wait()
            time.sleep(LONGEST_BATCHING)
            rows = list(self._rows)
            if rows and len(rows) == len(seen) and rows[0] is seen[0] and self._starving():
                self._flush()
            seen = rows

    def _flush(self) -> None:
        with self._lock:
            rows, self._rows = self._rows, []
            if rows:
                self._put(rows)

    def _put(self, rows: list[list[np.ndarray]]) -> None:
        leaves = rows[0] if self._elements.batched else [leaf[None] for leaf in rows[0]]
        if len(rows) > 1:
            leaves = [np.stack(column) for column in zip(*rows, strict=True)]
        try:
            self._ring.put(leaves)
        except Exception as error:
            # A ring closed meanwhile stays closed; otherwise the program's run raises this.
            self._ring.close(error)

    def _starving(self) -> bool:
        """Whether a program has nothing left to take while elements are still being batched."""
        return self._several > 1 and self._running.is_set() and self._ring.available() == 0
