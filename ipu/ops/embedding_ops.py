"""Popops embedding operators: the public names of `tensorflow.python.ipu.embedding_ops` (Python API, 18.14.12)."""

from __future__ import annotations

import math

import tensorflow as tf

from ipu._internal.embeddings.host_embedding import HostEmbedding, create_host_embedding
from ipu._internal.embeddings.optimizer_specs import HostEmbeddingOptimizerSpec, HostEmbeddingSGDGAOptimizerSpec
from ipu._internal.names.namespace import public_names
from ipu._internal.operators.checks import require
from ipu._internal.operators.serialization import serialized_lookup
from ipu._internal.types import TensorLike

__all__ = [
    "HostEmbedding",
    "HostEmbeddingOptimizerSpec",
    "HostEmbeddingSGDGAOptimizerSpec",
    "create_host_embedding",
    "embedding_lookup",
]
__getattr__, __dir__ = public_names(__name__, __all__)


def embedding_lookup(
    params: TensorLike,
    ids: TensorLike,
    name: str | None = None,
    serialization_factor: int = 1,
    indices_are_sorted: bool = False,
) -> tf.Tensor:
    """Looks up rows of an embedding. Its gradient is a dense tensor of the shape of `params`.

    Args:
        params: the whole embedding, [N, ...] of known shape.
        ids: numbers of rows, int32 [...].
        name: optional op name.
        serialization_factor: the number of smaller look-ups, one after the other in slices of `params`. It divides N.
        indices_are_sorted: accepted; it has no effect.

    Returns:
        [*ids.shape, *params.shape[1:]] of the type of `params`. Rows of ids outside of [0, N) are zeros if
        `serialization_factor` is above 1, and undefined otherwise.

    Raises:
        ValueError: the shape of `params` is not known, or `serialization_factor` is no divisor of N.
    """
    with tf.name_scope(name or "embedding_lookup"):
        params, ids = tf.convert_to_tensor(params), tf.convert_to_tensor(ids)
        known = params.shape.rank and params.shape.is_fully_defined()
        require(bool(known), "params of one or more known dimensions", f"the shape {params.shape}")
        rows, *row = params.shape.as_list()
        found = serialized_lookup(tf.reshape(params, [rows, math.prod(row)]), ids, serialization_factor)
        return tf.reshape(found, tf.concat([tf.shape(ids), tf.constant(row, tf.int32)], 0))
