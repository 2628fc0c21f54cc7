"""Converts the elements of a data set into arrays the engine can read."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from engine.ir.shape import ELEMENT_TYPES
from keras_ext.errors import RaggedInput, UnsupportedData
from keras_ext.types import Nest


def as_array(value: Nest) -> np.ndarray | None:
    """A C-contiguous array in native byte order, without a copy where possible; None for an absent optional.

    Sparse tensors and SciPy's sparse arrays are made dense: programs for an IPU have dense arrays only.
    Raises RaggedInput, also a ValueError, for ragged tensors, UnsupportedData for strings, and TensorFlow's errors
    for objects.
    """
    if type(value) is np.ndarray and value.flags.c_contiguous and value.dtype.isnative and value.dtype in ELEMENT_TYPES:
        return value
    if isinstance(value, tf.experimental.Optional):
        return None
    if isinstance(value, tf.RaggedTensor):
        raise _ragged(value.shape)
    if isinstance(value, tf.SparseTensor):
        value = tf.sparse.to_dense(tf.sparse.reorder(value))
    elif hasattr(value, "toarray"):
        value = value.toarray()
    array = value.numpy() if isinstance(value, tf.Tensor) else np.asarray(value)
    array = np.asarray(array, order="C")
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if array.dtype not in ELEMENT_TYPES:
        tf.convert_to_tensor(array)  # raises as in Keras for values that no tensor can hold
        raise _no_numbers(array.dtype)
    return array


def check_spec(spec: tf.TypeSpec) -> None:
    """Raises as `as_array` does for each value of the spec, if it does, so that none has to be read."""
    if isinstance(spec, tf.RaggedTensorSpec):
        raise _ragged(spec.shape)
    if isinstance(spec, tf.TensorSpec) and np.dtype(spec.dtype.as_numpy_dtype) not in ELEMENT_TYPES:
        raise _no_numbers(np.dtype(spec.dtype.as_numpy_dtype))


def _ragged(shape: tf.TensorShape) -> RaggedInput:
    return RaggedInput(
        f"Expected dense arrays. Received: a RaggedTensor of shape {shape}. "
        f"Make it dense in the input pipeline, with to_tensor()."
    )


def _no_numbers(dtype: np.dtype) -> UnsupportedData:
    return UnsupportedData(
        f"Expected arrays of numbers or booleans ({', '.join(map(str, ELEMENT_TYPES))}). "
        f"Received: dtype {dtype}. Encode such data on the host, in the input pipeline."
    )


def own_array(value: Nest) -> np.ndarray | None:
    """The array of `as_array` in memory to which the program has no reference."""
    array = as_array(value)
    return array.copy() if array is not None and (array is value or not array.flags.owndata) else array


def joined(arrays: list[np.ndarray]) -> np.ndarray:
    """Batches concatenated along their first axis; scalars become rows.

    Neighbouring slices of one array, as an unshuffled epoch yields them, are joined without copying.
    """
    first = arrays[0]
    if first.ndim == 0:
        return np.stack(arrays)
    if len(arrays) == 1:
        return first
    if first.nbytes and first.base is not None and _adjacent(arrays):
        shape = (sum(len(array) for array in arrays), *first.shape[1:])
        return np.lib.stride_tricks.as_strided(first, shape, first.strides, writeable=False)
    return np.concatenate(arrays)


def _adjacent(arrays: list[np.ndarray]) -> bool:
    end = arrays[0].ctypes.data
    for array in arrays:
        if array.base is not arrays[0].base or array.ctypes.data != end:
            return False
        end += array.nbytes
    return True
