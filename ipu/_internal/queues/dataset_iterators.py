"""`iter(dataset)` in an IPUStrategy's scope: an iterator whose elements are dequeued on the device."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ipu._internal.compiler.direct_calls import caller_is_library
from ipu._internal.function_code import wraps


def install() -> None:
    """Makes `iter(dataset)` use the strategy in scope. Libraries such as Keras get TensorFlow's own iterators."""
    original = tf.data.Dataset.__iter__
    if getattr(original, "_ipu_installed", False):
        return

    @wraps(original)
    def iterate(self: tf.data.Dataset) -> Any:
        if tf.distribute.has_strategy() and tf.executing_eagerly():
            strategy = tf.distribute.get_strategy()
            if getattr(strategy, "_enable_dataset_iterators", False) and not caller_is_library(1):
                from ipu._internal.queues.infeed_queue import IPUOwnedIterator

                return IPUOwnedIterator(self, device_ordinal=strategy.ordinal)
        return original(self)

    iterate._ipu_installed = True
    tf.data.Dataset.__iter__ = iterate
