"""Optimizers of host embeddings, which run on the host beside the optimizer of a model's other variables."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from engine.errors import ConfigurationError
from engine.integers import checked_integer
from ipu._internal.embeddings.tables import EmbeddingTable, table_of
from ipu._internal.graphs.session_operations import building_graph, session_operation
from ipu._internal.types import TensorLike


class HostEmbeddingOptimizerSpec:
    """Stochastic gradient descent: each gradient of a look-up is multiplied by the rate and subtracted from its rows.

    Rows are updated as soon as the backward pass comes to them, by each micro-batch and each replica in order; the
    updates add up. With a rate of 0 there are no updates.

    Args:
        learning_rate: the rate, a number.
        optimizer_name: "SGD", which None means, too.

    Raises:
        ValueError: another name.
    """

    _names = ("SGD",)
    _calls = 1

    def __init__(self, learning_rate: float, optimizer_name: str | None = None) -> None:
        if optimizer_name not in (None, *self._names):
            raise ConfigurationError(
                f"Expected optimizer_name to be one of {', '.join(self._names)}. Received: {optimizer_name!r}."
            )
        self._learning_rate = float(learning_rate)

    def get_learning_rate(self) -> float:
        """The rate."""
        return self._learning_rate

    def create_slot_variables(self, embedding_tensor: Any, name: str) -> list[Any]:
        """The slot variables: none.

        Args:
            embedding_tensor: no effect.
            name: no effect.

        Returns:
            An empty list.
        """
        return []

    def create_register_instruction(self, embedding_tensor: Any, slot_vars: list[Any], name: str) -> tf.Operation:
        """Registers the embedding: in a tf.Graph whenever a session executes the operation, else now.

        Args:
            embedding_tensor: the table, a variable or array [tokens, encoding].
            slot_vars: no effect.
            name: the name which identifies the embedding.

        Returns:
            The operation; None outside of a tf.Graph.

        Raises:
            ValueError: a table of another rank or dtype.
        """
        return _instruction(self._table(embedding_tensor, name), EmbeddingTable.register)

    def create_deregister_instruction(self, embedding_tensor: Any, slot_vars: list[Any], name: str) -> tf.Operation:
        """Ends the registration: in a tf.Graph whenever a session executes the operation, else now.

        Args:
            embedding_tensor: the table, a variable or array [tokens, encoding].
            slot_vars: no effect.
            name: the name which identifies the embedding.

        Returns:
            The operation; None outside of a tf.Graph.

        Raises:
            ValueError: a table of another rank or dtype.
        """
        return _instruction(self._table(embedding_tensor, name), EmbeddingTable.deregister)

    def create_lookup_instruction(
        self, embedding_tensor: Any, indices: TensorLike, slot_vars: list[Any], partition_strategy: str, name: str
    ) -> tf.Tensor:
        """The rows at `indices`, integers [...] in the range of the tokens, as [..., encoding].

        Args:
            embedding_tensor: the table, a variable or array [tokens, encoding].
            indices: integers [...]; one outside of the table ends the step with HostFunctionError.
            slot_vars: no effect.
            partition_strategy: no effect: the host's memory has the whole table.
            name: the name which identifies the embedding.

        Returns:
            The rows, [..., encoding], of the table's dtype.

        Raises:
            RuntimeError: called outside of a function that runs on the IPU.
            ValueError: a table of another rank or dtype.
        """
        table = self._table(embedding_tensor, name)
        return table.look_up(tf.convert_to_tensor(indices), self._learning_rate, self._calls)

    def _table(self, embedding_tensor: Any, name: str) -> EmbeddingTable:
        return table_of(name, embedding_tensor, bool(self._learning_rate))


class HostEmbeddingSGDGAOptimizerSpec(HostEmbeddingOptimizerSpec):
    """SGD with gradient accumulation: gradients of several mini-batches are applied together, after the last.

    Args:
        learning_rate: the rate, a number.
        accumulation_factor: the number of mini-batches of each replica in an update, 1 or more.

    Raises:
        ValueError: a factor below 1.
    """

    _names = ("SGD+GA",)

    def __init__(self, learning_rate: float, accumulation_factor: int) -> None:
        super().__init__(learning_rate)
        self._calls = checked_integer("accumulation_factor", accumulation_factor, 1)

    def get_accumulation_factor(self) -> int:
        """The number of mini-batches in an update."""
        return self._calls


def _instruction(table: EmbeddingTable, method: Any) -> tf.Operation:
    if building_graph():
        return session_operation(lambda session: method(table, session))
    method(table, None)
    return tf.no_op()
