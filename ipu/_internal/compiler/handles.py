"""The value of a TensorFlow variable by its handle, and whether anything has written it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context, execute
from tensorflow.python.framework import ops
from tensorflow.python.ops import gen_resource_variable_ops

from engine.ir import shape_of
from engine.runtime.buffers import ALIGNMENT, DeviceBuffer


class HostValue:
    """A variable's value in TensorFlow, which may be written at any time, by its handle.

    TensorFlow counts the references to a value, and writes to other memory while a tensor refers to it. This object
    keeps the tensor that it has read last, so the same address, or the same scalar, means that nothing was written.
    """

    def __init__(self, handle: tf.Tensor) -> None:
        self._handle = handle
        self._seen: Any = None
        self._mark: object = None
        """The address of the tensor that was seen last, or the bytes of a scalar."""

    @cached_property
    def _dtype(self) -> tf.DType:
        return tf.as_dtype(self._handle._handle_data.shape_and_type[0].dtype)

    def copied_to(self, buffer: DeviceBuffer | None, present: Any = None) -> DeviceBuffer:
        """The buffer that the value was copied to last, or a new one, with the value as it is now.

        The value is copied if it was written since this object has seen it. `present` is the tensor that
        `present_values` has just read. Raises ValueError for a value of another shape.
        """
        with _eager():
            mark, seen = self._mark, self._seen  # keeps the memory of the old value until the comparison
            value = self._see(self._read() if present is None else present)
            if buffer is not None and seen is not None and self._mark == mark:
                return buffer
            if buffer is None or seen is not None:
                # After an update of rows TensorFlow copies each value that it reads. This operation ends that.
                gen_resource_variable_ops.disable_copy_on_read(self._handle)
                value = self._see(self._read())
        copied, self._seen = self._seen, None  # not seen if the buffer refuses it
        array = np.asarray(value)
        buffer = DeviceBuffer(shape_of(array)) if buffer is None else buffer
        buffer.write(array)
        self._seen = copied
        return buffer

    def was_written(self) -> bool:
        """Whether the value was written since this object has seen it."""
        with _eager():
            other = HostValue(self._handle)
            other._see(other._read())
            return self._mark != other._mark

    def replace(self, value: np.ndarray) -> None:
        """Gives the variable a copy of an array of its shape and dtype."""
        memory = np.empty(value.nbytes + ALIGNMENT, np.uint8)  # TensorFlow would copy an array at another address
        start = -memory.ctypes.data % ALIGNMENT
        copy = memory[start : start + value.nbytes].view(value.dtype).reshape(value.shape)
        copy[...] = value
        with _eager():
            tensor = ops.EagerTensor(copy, "/device:CPU:0", self._dtype.as_datatype_enum)
            gen_resource_variable_ops.assign_variable_op(self._handle, tensor)
        self._see(tensor)

    def forget(self) -> None:
        """Lets TensorFlow write in place: the value is copied the next time in any case."""
        self._seen = None

    def _read(self) -> Any:
        return gen_resource_variable_ops.read_variable_op(self._handle, self._dtype)

    def _see(self, tensor: Any) -> Any:
        value = tensor._numpy_internal()
        self._mark = value.__array_interface__["data"][0] if isinstance(value, np.ndarray) else value.tobytes()
        self._seen = tensor
        return value


def present_values(values: Sequence[HostValue]) -> list[Any]:
    """The tensors of several variables, read by one operation, which takes a fifth of the time of one for each."""
    with _eager():
        types = [each._dtype.as_datatype_enum for each in values]
        handles = [each._handle for each in values]
        attributes = ("N", len(handles), "dtypes", types)
        return list(execute.execute(b"_ReadVariablesOp", len(handles), handles, attributes, context.context()))


@contextlib.contextmanager
def _outside_graphs() -> Iterator[None]:
    with ops.init_scope(), context.eager_mode():
        yield


def _eager() -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext() if context.executing_eagerly() else _outside_graphs()


def is_variable(handle: tf.Tensor) -> bool:
    """Whether a resource is a variable, and not a table or an iterator."""
    data = getattr(handle, "_handle_data", None)
    return bool(data is not None and data.is_set and len(data.shape_and_type) == 1)
