"""Tables of host embeddings: state that programs of all traces share, and look-ups in a function being traced."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import ops
from tensorflow.python.ops import resource_variable_ops

from engine.errors import ConfigurationError
from engine.ir.shape import ELEMENT_TYPES, Shape
from engine.runtime.host_tables import HostTable, LookUp, Update
from ipu._internal.compiler.device_calls import require_trace
from ipu._internal.compiler.function_trace import scales_loss
from ipu._internal.compiler.processes import transport_of
from ipu._internal.compiler.variables import IPUVariable, in_symbolic_graph
from ipu._internal.embeddings.memory import RegisteredMemory, storage_of
from ipu._internal.graphs.variables import Session
from ipu._internal.host_functions.calls import host_call

TRAINED = (tf.float16, tf.bfloat16, tf.float32, tf.float64)


class EmbeddingTable:
    """A table [rows, width] in the host's memory."""

    def __init__(self, name: str, tensor: Any, trainable: bool) -> None:
        self.name, self.tensor, self.trainable = name, tensor, trainable
        self.dtype = tf.as_dtype(tensor.dtype)
        dimensions = tuple(tf.TensorShape(tensor.shape).as_list())
        known = len(dimensions) == 2 and all(dimensions)
        if not known or np.dtype(self.dtype.as_numpy_dtype) not in ELEMENT_TYPES:
            raise ConfigurationError(
                f"Expected host embedding {name!r} to have a table of numbers, [tokens, encoding]. Received: "
                f"{self.dtype.name}{list(dimensions)}."
            )
        if trainable and self.dtype not in TRAINED:
            raise ConfigurationError(
                f"Expected host embedding {name!r}, which has an optimizer, to have a table of floating-point numbers. "
                f"Received: {self.dtype.name}. Nearest: float32, or no optimizer_spec."
            )
        self._memory = RegisteredMemory(name, storage_of(tensor, trainable))
        self._shape = Shape(ELEMENT_TYPES[np.dtype(self.dtype.as_numpy_dtype)], tuple(map(int, dimensions)))
        self._shared = HostTable(name, self._memory, None if isinstance(tensor, np.ndarray) else tensor)
        self._updates: weakref.WeakSet[Update] = weakref.WeakSet()
        self._dummy: Any = None
        if trainable:
            self.dummy()

    def dummy(self) -> Any:
        """The scalar variable through which gradients flow: one in each tf.Graph, one outside of them."""
        name = f"{self.name}/__dummy"
        with ops.init_scope(), tf.name_scope(""), tf.device("/device:CPU:0"):
            if tf.executing_eagerly():
                if self._dummy is None:
                    self._dummy = IPUVariable(initial_value=0.0, dtype=tf.float32, trainable=True, name=name)
                    self._dummy.of_table = self
                return self._dummy
            for variable in tf.compat.v1.trainable_variables():
                if getattr(variable, "of_table", None) is self:
                    return variable
            made: Any = resource_variable_ops.ResourceVariable(0.0, dtype=tf.float32, trainable=True, name=name)
            made.of_table = self
            return made

    def register(self, session: Session | None) -> None:
        """Lets programs of a session use the table. Gradients of an update that was not completed are dropped."""
        self._memory.register(session)
        if session is None:
            _registered.append(self)
        for update in self._updates:
            update.forget()

    def deregister(self, session: Session | None) -> None:
        """Ends the use that `register` allowed; writes what was updated in a file's memory to the file."""
        self._memory.deregister(session)
        if session is None:
            _registered.remove(self)
        if isinstance(self.tensor, np.memmap) and self.tensor.flags.writeable:
            self.tensor.flush()

    def look_up(self, indices: tf.Tensor, rate: float, calls: int) -> tf.Tensor:
        """The rows at `indices` [...], from the host, as [..., width].

        The gradient of the result is multiplied by `rate` and subtracted from these rows, at once or for `calls` calls
        together; with a rate of 0 the result has no gradient.
        """
        width = self._shape.dimensions[1]
        if in_symbolic_graph():
            shape = [*indices.shape.as_list(), width]
            return tf.ensure_shape(tf.zeros(tf.concat([tf.shape(indices), [width]], 0), self.dtype), shape)
        require_trace(f"a look-up in host embedding {self.name!r}")
        function = LookUp(self.name, self._shared, self._shape)
        spec = tf.TensorSpec([*indices.shape.as_list(), width], self.dtype)
        rows = host_call(function, [indices], [spec], lambda *_: [None])[0][0]
        if not rate:
            return tf.stop_gradient(rows)

        @tf.custom_gradient
        def trained(rows: tf.Tensor, dummy: tf.Tensor) -> Any:
            def gradient(upstream: tf.Tensor) -> list[Any]:
                _check_trained(self.name)
                update = Update(self.name, self._shared, self._shape, rate, calls)
                self._updates.add(update)
                host_call(update, [indices, tf.convert_to_tensor(upstream)], [], lambda *_: [])
                return [None, tf.zeros_like(dummy)]

            return tf.identity(rows), gradient

        return trained(tf.stop_gradient(rows), self.dummy().read_value())


def _check_trained(name: str) -> None:
    """Raises ConfigurationError where updates of a table would not be those of one program, or of the loss itself."""
    transport = transport_of()
    if transport is not None:
        raise ConfigurationError(
            f"Expected one process to train host embedding {name!r}, whose table is in its memory. Received: a step of "
            f"{transport.size} processes, whose tables would differ. Train in one process with as many replicas, or "
            f"leave optimizer_spec out."
        )
    if scales_loss():
        raise ConfigurationError(
            f"Expected the gradients of host embedding {name!r} to be those of the loss. Received: an optimizer that "
            f"scales the loss by a factor that it changes. Compile with auto_scale_loss=False, or in tf_keras with "
            f"LossScaleOptimizer(dynamic=False), and divide the table's learning rate by a factor of your own. Or use "
            f"mixed_bfloat16."
        )


_registered: list[EmbeddingTable] = []
"""Tables registered outside of sessions, which stay alive without their HostEmbedding."""
_tables: weakref.WeakValueDictionary[tuple[str, int], EmbeddingTable] = weakref.WeakValueDictionary()


def table_of(name: str, tensor: Any, trainable: bool) -> EmbeddingTable:
    """The table of that name, made at its first use. Raises ConfigurationError for a tensor that is not a table."""
    found = _tables.get((name, id(tensor)))
    if found is None or (trainable and not found.trainable):
        found = _tables[name, id(tensor)] = EmbeddingTable(name, tensor, trainable)
    return found
