"""Steps of plain Keras between those of the engine: for batches of a shape that it refuses once others have run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

from engine.errors import IPUError
from ipu._internal.thread_values import ThreadValue
from keras_ext.epochs.feeds import BatchSource
from keras_ext.types import KerasModel

Outside = Callable[[], AbstractContextManager[None]]
"""Makes a context in which plain Keras runs the model."""
falls_back: ThreadValue[Callable[[KerasModel, IPUError], Outside | None]] = ThreadValue(lambda model, error: None)
"""The function that is called when batches of a model are refused; if it returns None, the error is raised."""


class PlainStep:
    """A step that TensorFlow runs."""

    def __init__(self, step: Callable[[Any], Any], outside: Outside) -> None:
        self._function = tf.function(step, autograph=False)
        self._concrete: Callable[[Any], Any] | None = None
        self._outside = outside

    def __call__(self, batches: BatchSource) -> list[Any]:
        """Runs the steps, and returns the result of each."""
        data = [batch_of(batches, index) for index in range(batches.steps)]
        with self._outside():
            if self._concrete is None:  # all batches have one shape, and TensorFlow would warn of so many functions
                self._concrete = self._function.get_concrete_function(data[0])
            return [self._concrete(batch) for batch in data]


def batch_of(batches: BatchSource, index: int) -> Any:
    """One batch as tensors, nested as the data are."""
    pairs = zip(batches.feeds, batches.signature.shapes, strict=True)
    arrays = (feed.step(index, shape[0]) if shape else feed.step(index, 1)[0] for feed, shape in pairs)
    return batches.signature.layout.unflatten(iter([tf.convert_to_tensor(array) for array in arrays]))
