"""The batches of Keras 3's data adapters: rows of arrays, tf.data sets, and Python iterators read by a thread."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from keras.src import tree
from keras.src.trainers.data_adapters import array_slicing, data_adapter_utils
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter
from keras.src.trainers.data_adapters.data_adapter import DataAdapter
from keras.src.trainers.data_adapters.generator_data_adapter import GeneratorDataAdapter
from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter
from keras.src.trainers.data_adapters.tf_dataset_adapter import TFDatasetAdapter

from keras_ext import runs
from keras_ext.epochs.feeds import RowBatches
from keras_ext.epochs.limited import LimitedIterator
from keras_ext.epochs.read_ahead import ReadAhead
from keras_ext.epochs.super_batches import super_batches
from keras_ext.types import Batch


def batches_of(adapter: DataAdapter, standard: Standard, steps: int, needed: int | None) -> Iterable[Any]:
    """An iterable over the batches of a pass. `needed` of them (None: all) are used, `steps` at once."""
    if isinstance(adapter, TFDatasetAdapter):
        return super_batches(adapter.get_tf_dataset(), steps, runs.executions_ahead())
    refuse_no_batches(adapter)
    if getattr(adapter, "enqueuer", None) is not None:  # the workers of a PyDataset read ahead themselves
        return _Enqueued(adapter, standard)
    return runs.closed_after(ReadAhead(lambda: _python_batches(adapter, standard), needed))


def rows_of(adapter: ArrayDataAdapter) -> RowBatches:
    """The rows of a program's arrays, as they are now. Raises ValueError for arrays of strings or objects."""
    for array in tree.flatten(adapter._inputs):
        _check_numbers(array)
    sliceable = array_slicing.convert_to_sliceable(adapter._inputs, target_backend="numpy")
    arrays = tree.map_structure(_whole_array, sliceable, none_is_leaf=False)
    batch_size, shuffle = adapter._batch_size, adapter._shuffle
    return RowBatches(tree.lists_to_tuples(arrays), batch_size, shuffle, runs.arrays_may_change())


def _check_numbers(array: Any) -> None:
    dtype = getattr(array, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype.kind in "OSU":
        raise ValueError(
            f"Expected arrays of numbers for a model. Received: an array of shape {array.shape} and dtype {dtype}. "
            "Encode labels as integers, for example with np.unique(labels, return_inverse=True)[1] or a "
            "keras.layers.StringLookup layer over the data; convert objects that are numbers with astype('float32')."
        )


def _whole_array(sliceable: array_slicing.Sliceable) -> Any:
    if isinstance(sliceable, array_slicing.TensorflowSparseSliceable):
        return sliceable.array.sparse
    if isinstance(sliceable, array_slicing.TensorflowRaggedSliceable):
        return sliceable.array
    return sliceable.convert_to_numpy(sliceable[slice(None)])


def refuse_no_batches(adapter: DataAdapter) -> None:
    """Raises ValueError for a PyDataset of length 0."""
    if isinstance(adapter, PyDatasetAdapter) and adapter.num_batches == 0:
        raise ValueError("Expected a PyDataset with at least one batch. Received: The PyDataset has length 0.")


class _Enqueued:
    """Passes over a PyDataset that its own workers read."""

    def __init__(self, adapter: PyDatasetAdapter, standard: Standard) -> None:
        self._adapter, self._standard = adapter, standard

    def __iter__(self) -> LimitedIterator:
        return LimitedIterator(_python_batches(self._adapter, self._standard), sys.maxsize)


def _python_batches(adapter: DataAdapter, standard: Standard) -> Iterator[Batch]:
    if isinstance(adapter, GeneratorDataAdapter):
        return map(standard.converted, adapter.generator())
    if isinstance(adapter, PyDatasetAdapter):
        return map(standard.converted, adapter._get_iterator())
    return iter(adapter.get_numpy_iterator())


class Standard:
    """Converts batches of a Python iterator to the specs of the `first` two, as the tf.data set of plain Keras does.

    Without `first`, the specs are those of the first batches that are converted.
    """

    def __init__(self, first: Iterable[Batch] = ()) -> None:
        self._first: list[Batch] | None = list(first)
        self._specs: Any = None
        if self._first:
            self._specs, self._first = data_adapter_utils.get_tensor_spec(self._first), None

    def converted(self, batch: Batch) -> Any:
        """A batch of arrays of the specs.

        Raises ValueError and TypeError as Keras, for arrays without an axis, or of other axes than the first two have.
        """
        if self._first is not None:
            self._first.append(batch)
            self._specs = data_adapter_utils.get_tensor_spec(self._first)
            if len(self._first) == data_adapter_utils.NUM_BATCHES_FOR_TENSOR_SPEC:
                self._first = None
        return tree.map_structure(_converted, batch, self._specs)


def _converted(value: Any, spec: tf.TypeSpec) -> Any:
    if value is None or data_adapter_utils.is_scipy_sparse(value) or data_adapter_utils.is_jax_sparse(value):
        return value
    if not spec.shape.is_compatible_with(value.shape):
        raise TypeError(
            f"Expected batches of shape {spec.shape}, like the first two. Received: {value.shape}. Give all batches "
            "one shape, or let each size that may differ do so in the first two batches already."
        )
    if not isinstance(spec, tf.TensorSpec) or (type(value) is np.ndarray and value.dtype == spec.dtype.as_numpy_dtype):
        return value
    return tf.convert_to_tensor(value, dtype=spec.dtype)._numpy()
