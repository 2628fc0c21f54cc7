"""Dataset wrappers: the public name of `tensorflow.python.ipu.data.ops.dataset_ops` (Python API, 18.11.2)."""

from __future__ import annotations

import tensorflow as tf
from tensorflow.python.data.ops import dataset_ops

from engine.integers import checked_integer
from ipu._internal.names.namespace import public_names
from ipu._internal.types import Nest

__all__ = ["BufferDataset"]
__getattr__, __dir__ = public_names(__name__, __all__)


class BufferDataset(dataset_ops.UnaryUnchangedStructureDataset):
    """A Dataset which makes sure there is a multiple of buffer_size number of elements available.

    It reads `buffer_size` elements before it yields the first of them; a remainder of fewer is dropped.

    Args:
        input_dataset: the input dataset, of any structure.
        buffer_size: the number of dataset elements which will be available.

    Raises:
        TypeError: `input_dataset` is no tf.data.Dataset.
        ValueError: `buffer_size` is no integer of at least 1.
    """

    def __init__(self, input_dataset: tf.data.Dataset, buffer_size: int) -> None:
        if not isinstance(input_dataset, tf.data.Dataset):
            raise TypeError(
                f"Expected input_dataset to be a tf.data.Dataset. Received: {type(input_dataset).__name__}."
            )
        windows = input_dataset.window(checked_integer("buffer_size", buffer_size), drop_remainder=True)
        buffered = windows.flat_map(_elements)
        super().__init__(input_dataset, buffered._variant_tensor)


def _elements(*window: Nest) -> tf.data.Dataset:
    """The elements of a window, which is a structure of data sets."""
    structure = window if len(window) > 1 else window[0]
    return structure if isinstance(structure, tf.data.Dataset) else tf.data.Dataset.zip(structure)
