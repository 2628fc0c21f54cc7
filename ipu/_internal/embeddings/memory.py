"""The memory of host embeddings: a variable's, in a session or not, or an array's, which may be a file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.framework import ops
from tensorflow.python.ops import gen_array_ops, gen_resource_variable_ops

from engine.errors import ConfigurationError, IPUError
from ipu._internal.graphs.variables import Session, running_session, session_run


class NotRegistered(IPUError, tf.errors.FailedPreconditionError):
    """A program looks rows up in a host embedding that is not registered."""

    def __init__(self, message: str) -> None:
        tf.errors.FailedPreconditionError.__init__(self, None, None, message)


class TableStorage(Protocol):
    """The memory of a table."""

    def array(self) -> np.ndarray:
        """The table's memory as it is now, for the running session, in place; nothing else refers to it."""


class RegisteredMemory:
    """The memory of a table, for programs that run where the table is registered."""

    def __init__(self, name: str, storage: TableStorage) -> None:
        self._name, self._storage = name, storage
        self._sessions: list[Session | None] = []
        self._held: np.ndarray | None = None

    def register(self, session: Session | None) -> None:
        """Lets programs of a session use the table, or those outside of sessions."""
        self._sessions.append(session)

    def deregister(self, session: Session | None) -> None:
        """Ends the use that `register` allowed. Raises ConfigurationError for a table that is not registered."""
        if session not in self._sessions:
            raise ConfigurationError(
                f"Expected host embedding {self._name!r} to be registered before its registration ends. Received: one "
                "that is not. Register it first."
            )
        self._sessions.remove(session)

    def acquire(self) -> np.ndarray:
        """The table's memory. Raises NotRegistered."""
        session = running_session()
        if session not in self._sessions:
            where = "with embedding.register(session)" if session is not None else "with embedding.register()"
            raise NotRegistered(
                f"Expected host embedding {self._name!r} to be registered while a program uses it. Received: a call "
                f"of the program before that, or after. Call it in `{where}:`."
            )
        return self._storage.array()

    def release(self) -> None:
        """Ends the use: the memory is the storage's own."""


def storage_of(tensor: Any, trainable: bool) -> TableStorage:
    """The storage of a table. Raises ConfigurationError for anything but resource variables and suitable arrays."""
    if isinstance(tensor, np.ndarray):
        return _Array(tensor, trainable)
    if getattr(getattr(tensor, "handle", None), "dtype", None) != tf.resource:
        raise ConfigurationError(
            f"Expected the tensor of a host embedding to be a resource variable or a NumPy array. Received: "
            f"{type(tensor).__name__}. Create it by create_host_embedding, tf.Variable or np.memmap."
        )
    return _EagerVariable(tensor) if isinstance(tensor.handle, ops.EagerTensor) else _GraphVariable(tensor)


class _Array:
    """An array, such as np.memmap."""

    def __init__(self, array: np.ndarray, trainable: bool) -> None:
        if not array.flags.c_contiguous or (trainable and not array.flags.writeable):
            raise ConfigurationError(
                f"Expected the array of a host embedding to be C-contiguous{', and writable' * trainable}. Received: "
                f"strides {array.strides}, writable: {array.flags.writeable}. Open a file by np.memmap(mode='r+')."
            )
        self._array = array

    def array(self) -> np.ndarray:
        """The array itself."""
        return self._array


class _EagerVariable:
    """A variable of eager TensorFlow."""

    def __init__(self, variable: Any) -> None:
        self._variable = variable
        with _on_the_host():
            self._no_rows = _no_rows(variable)

    def array(self) -> np.ndarray:
        """The variable's own memory; values read before keep theirs."""
        with _on_the_host():
            return _memory(_unshared(self._variable, self._no_rows))


class _GraphVariable:
    """A variable of a tf.Graph: each session has its own."""

    def __init__(self, variable: Any) -> None:
        self._taken: list[np.ndarray] = []
        with variable.graph.as_default(), ops.control_dependencies(None), tf.device("/device:CPU:0"):
            with tf.name_scope(f"{variable.op.name}/ipu/"):
                value = _unshared(variable, _no_rows(variable))
                self._take = tf.py_function(lambda tensor: self._taken.append(_memory(tensor)), [value], [])

    def array(self) -> np.ndarray:
        """The memory of the running session's variable."""
        session_run(running_session(), {}, [], [self._take])
        return self._taken.pop()


@contextlib.contextmanager
def _on_the_host() -> Iterator[None]:
    with ops.init_scope(), context.eager_mode(), tf.device("/device:CPU:0"):
        yield


def _no_rows(variable: Any) -> list[tf.Tensor]:
    """Begin, end, strides and value of an assignment to no row."""
    empty = tf.zeros([0, *variable.shape.as_list()[1:]], variable.dtype)
    return [tf.constant([0]), tf.constant([0]), tf.constant([1]), empty]


def _unshared(variable: Any, no_rows: list[tf.Tensor]) -> tf.Tensor:
    """The variable's value in its own memory. Tensors read before, which share it, keep their values by a copy."""
    write = gen_array_ops.resource_strided_slice_assign(variable.handle, *no_rows)
    with tf.control_dependencies([write] if write is not None else []):
        share = gen_resource_variable_ops.disable_copy_on_read(variable.handle)
    with tf.control_dependencies([share] if share is not None else []):
        return gen_resource_variable_ops.read_variable_op(variable.handle, variable.dtype)


def _memory(value: tf.Tensor) -> np.ndarray:
    array: np.ndarray = value._numpy_internal()  # the tensor's memory, where numpy() would copy it
    return array
