"""An outfeed by which the host checks a value before the program continues."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python.framework import ops

from engine.ir.device_operations import OUTFEED, QueueSignature
from ipu._internal.compiler.device_calls import ordered_call
from ipu._internal.queues.outfeed import OutfeedEndpoint, Rows

if TYPE_CHECKING:
    from engine.runtime.rings import OutfeedRing

ENQUEUED = 3
"""Rows enqueued for one check: with a single slot the second waits until the first is taken, the third until the first
is checked.
"""


class Approval(OutfeedEndpoint):
    """Calls `check` with each row; its error ends the program in the present step, and `run` raises it."""

    _may_be_synthetic = False

    def __init__(self, check: Callable[[Any], None]) -> None:
        self._check = check
        super().__init__(None, last_only=False, depth=1)

    def begin(self, signature: QueueSignature, replicas: int, sequential: int = 1) -> OutfeedRing:
        """Creates a new ring of one slot, as one closed by a failure stays closed."""
        from engine.runtime.rings import OutfeedRing

        self._ring = OutfeedRing(signature.shapes, 1)
        return super().begin(signature, replicas, sequential)

    def drain(self) -> float:
        """Takes no row after a refused one, so that the ring stays full and the program stops."""
        with self._lock:
            return 0.0 if self._ring is not None and self._ring.closed else super().drain()

    def _received(self, rows: Rows) -> None:
        for row in rows[0]:
            self._check(row)


def approved(value: tf.Tensor, check: Callable[[Any], None]) -> tf.Tensor:
    """The value, in the function being traced, once `check` has got it on the host: an array, [R] with R replicas.

    `IPUStrategy.run` raises an error of `check`, and variables are not written then.
    """
    approval, graph = Approval(check), ops.get_default_graph()
    # Programs refer to it by name only: the graph keeps it alive.
    graph._ipu_approvals = [*getattr(graph, "_ipu_approvals", []), approval]
    operations: list[tf.Operation] = []
    for _ in range(ENQUEUED):
        with tf.control_dependencies(operations):
            _, operation = ordered_call(OUTFEED, [value], {"queue": approval.name})
        operations.append(operation)
    with tf.control_dependencies(operations):
        return tf.identity(value)
