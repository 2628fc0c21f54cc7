"""The operation that enqueues tensors to an outfeed, for queues and for printing."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import tensorflow as tf

from engine.ir.device_operations import OUTFEED
from ipu._internal.compiler.device_calls import ordered_call
from ipu._internal.compiler.marks import in_marked_step
from ipu._internal.compiler.tokens import own_chain


def enqueue(queue: str, tensors: Sequence[tf.Tensor]) -> tf.Operation:
    """Enqueues an element of these tensors to the queue of that name, in program order; returns the operation.

    Steps of Keras are divided at their gradients and into stages, where each queue has an order of its own.
    """
    with own_chain(queue) if in_marked_step() else contextlib.nullcontext():
        _, operation = ordered_call(OUTFEED, tensors, {"queue": queue})
    return operation
