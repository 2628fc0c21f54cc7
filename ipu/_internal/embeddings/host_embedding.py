"""`HostEmbedding`: a table in the host's memory, with the context in which programs may use it."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import resource_variable_ops

from engine.errors import ConfigurationError
from ipu._internal.embeddings.optimizer_specs import HostEmbeddingOptimizerSpec
from ipu._internal.embeddings.tables import table_of
from ipu._internal.graphs.session_operations import building_graph
from ipu._internal.types import TensorLike

STRATEGIES = ("TOKEN", "ENCODING")
Instructions = tuple[tf.Operation, tf.Operation]


class HostEmbedding:
    """A table [tokens, encoding] in the host's memory: programs fetch the rows that they look up, and update them.

    Its rows change in place while a program runs. Arrays and tensors that were read from a variable before keep their
    values. An np.memmap may be larger than memory; only its file saves it.

    Args:
        name: the name which uniquely identifies the embedding.
        embedding_tensor: the table: a resource variable, or a C-contiguous NumPy array, which is used in place.
        partition_strategy: "TOKEN" or "ENCODING", the axis by which a chip would divide it among replicas. Here they
            share the one table: it changes nothing.
        optimizer_spec: how it is optimized. With None it is not trained; otherwise its gradients flow through a scalar
            variable, `name/__dummy`: TensorFlow 1 optimizers find it among the trainable variables, and a
            tf.GradientTape watches it. It stays 0.

    Raises:
        ValueError: a table of another rank or kind, of integers though it has an optimizer, or another strategy.
    """

    def __init__(
        self,
        name: str,
        embedding_tensor: Any,
        partition_strategy: str = "TOKEN",
        optimizer_spec: HostEmbeddingOptimizerSpec | None = None,
    ) -> None:
        if partition_strategy not in STRATEGIES:
            raise ConfigurationError(
                f"Expected partition_strategy to be one of {', '.join(STRATEGIES)}. Received: {partition_strategy!r}."
            )
        self._name, self._tensor, self._partition_strategy = name, embedding_tensor, partition_strategy
        self._spec = optimizer_spec or HostEmbeddingOptimizerSpec(0.0)
        self._table = table_of(name, embedding_tensor, bool(self._spec.get_learning_rate()))
        self._slots = self._spec.create_slot_variables(embedding_tensor, name)
        self._instructions: weakref.WeakKeyDictionary[tf.Graph, Instructions] = weakref.WeakKeyDictionary()
        if building_graph():  # now, as the graph may be finalized before a session registers it
            self._instructions_in(tf.compat.v1.get_default_graph())

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Raises NotImplementedError: `register` gives the context."""
        raise NotImplementedError("Expected `with embedding.register(session):`. Received: a call of the embedding.")

    def get_embedding_tensor(self) -> Any:
        """The table: the variable or array that it was made of."""
        return self._tensor

    def lookup(self, indices: TensorLike, clip_indices: bool = True) -> tf.Tensor:
        """Fetches rows from the host, in a function that runs on the IPU.

        Args:
            indices: integers [...].
            clip_indices: whether an index outside of the table is replaced by the nearest one. Otherwise it ends the
                step with HostFunctionError.

        Returns:
            The rows, [..., encoding], of the table's dtype.

        Raises:
            TypeError: indices that are no integers.
            RuntimeError: called outside of such a function.
        """
        indices = tf.convert_to_tensor(indices)
        if not indices.dtype.is_integer:
            raise TypeError(f"Expected indices of integers. Received: {indices.dtype.name}. Nearest: int32.")
        if clip_indices:
            last = min(tf.TensorShape(self._tensor.shape).as_list()[0] - 1, indices.dtype.max)
            indices = tf.clip_by_value(indices, tf.constant(0, indices.dtype), tf.constant(last, indices.dtype))
        return self._spec.create_lookup_instruction(
            self._tensor, indices, self._slots, self._partition_strategy, self._name
        )

    @contextlib.contextmanager
    def register(self, session: Any = None) -> Iterator[None]:
        """Lets programs use the table, while the context is open; after it, all updates are in the variable, or the
        array's file.

        Args:
            session: the session whose programs use it; None for those outside of a tf.Graph.

        Raises:
            ValueError: in a tf.Graph without a session.
        """
        if session is None and building_graph():
            raise ConfigurationError(
                "Expected a session in a tf.Graph. Received: None. Call register(session), after the variables' "
                "initializer."
            )
        if session is None:
            self._spec.create_register_instruction(self._tensor, self._slots, self._name)
        else:
            session.run(self._instructions_in(session.graph)[0])
        try:
            yield
        finally:
            if session is None:
                self._spec.create_deregister_instruction(self._tensor, self._slots, self._name)
            else:
                session.run(self._instructions_in(session.graph)[1])

    def _instructions_in(self, graph: tf.Graph) -> Instructions:
        """The operations that register and deregister it."""
        if graph not in self._instructions:
            with graph.as_default():
                arguments = self._tensor, self._slots, self._name
                self._instructions[graph] = (
                    self._spec.create_register_instruction(*arguments),
                    self._spec.create_deregister_instruction(*arguments),
                )
        return self._instructions[graph]


def create_host_embedding(
    name: str,
    shape: Any,
    dtype: Any,
    partition_strategy: str = "TOKEN",
    optimizer_spec: HostEmbeddingOptimizerSpec | None = None,
    initializer: Any = None,
) -> HostEmbedding:
    """A HostEmbedding of a new variable on the host, which no optimizer sees, and a Saver saves.

    Args:
        name: the name which uniquely identifies the embedding; the variable's name.
        shape: [tokens, encoding].
        dtype: the dtype of the table.
        partition_strategy: as for HostEmbedding.
        optimizer_spec: as for HostEmbedding.
        initializer: an initializer of TensorFlow or Keras, or the initial value; None is zeros.

    Returns:
        The HostEmbedding.

    Raises:
        ValueError: as HostEmbedding.
    """
    shape, dtype = tf.TensorShape(shape), tf.as_dtype(dtype)
    with tf.init_scope(), tf.device(None), tf.device("/device:CPU:0"):
        if tf.executing_eagerly():
            initializer = initializer() if isinstance(initializer, type) else initializer
            value = initializer(shape, dtype=dtype) if callable(initializer) else initializer
            value = tf.zeros(shape, dtype) if value is None else tf.cast(value, dtype)
            tensor = resource_variable_ops.ResourceVariable(value, trainable=False, name=name)
        else:
            initializer = tf.zeros_initializer() if initializer is None else initializer
            is_value = not callable(initializer)
            tensor = tf.compat.v1.get_variable(
                *(name, None if is_value else shape, dtype, initializer), trainable=False, use_resource=True
            )
    return HostEmbedding(name, tensor, partition_strategy, optimizer_spec)
