"""Collectives between the shards of a replica: the public names of `tensorflow.python.ipu.within_replica_ops`.

Shards are parts of one program here, so each collective is one computation, whose result every shard gets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ipu._internal.names.namespace import public_names
from ipu._internal.operators.checks import require
from ipu._internal.types import TensorLike
from ipu.sharding import SHARD, has_attr

__all__ = ["all_gather", "all_reduce", "reduce_scatter"]
__getattr__, __dir__ = public_names(__name__, __all__)

PREFIX = "COLLECTIVE_OP_"
TYPES = (tf.float16, tf.float32, tf.int32)


def _as_logical(function: Callable[..., Any]) -> Callable[[tf.Tensor], tf.Tensor]:
    return lambda x: tf.cast(function(tf.not_equal(x, 0), 0), x.dtype)


REDUCTIONS: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "ADD": lambda x: tf.reduce_sum(x, 0),
    "MUL": lambda x: tf.reduce_prod(x, 0),
    "MIN": lambda x: tf.reduce_min(x, 0),
    "MAX": lambda x: tf.reduce_max(x, 0),
    "LOGICAL_AND": _as_logical(tf.reduce_all),
    "LOGICAL_OR": _as_logical(tf.reduce_any),
    "SQUARE_ADD": lambda x: tf.reduce_sum(x * x, 0),
    "MEAN": lambda x: tf.reduce_sum(x, 0) // x.shape.as_list()[0] if x.dtype.is_integer else tf.reduce_mean(x, 0),
}
"""Reductions of the stacked shards, by the name of the operation without its prefix."""


def all_gather(input_shards: Sequence[TensorLike], axis: int = 0) -> tuple[tf.Tensor, ...]:
    """Gathers the tensors of all shards on every shard.

    Args:
        input_shards: two or more tensors of one type (float16, float32 or int32) and rank, that of shard i at index i.
        axis: the axis along which to concatenate them.

    Returns:
        A tuple with the concatenation for each shard.

    Raises:
        ValueError: fewer than two tensors, two on one shard, or tensors of different types or ranks.
    """
    shards = _checked(input_shards)
    return (tf.concat(shards, axis),) * len(shards)


def all_reduce(input_shards: Sequence[TensorLike], op: str = "COLLECTIVE_OP_ADD") -> tuple[tf.Tensor, ...]:
    """Reduces the tensors of all shards; every shard gets the result.

    Args:
        input_shards: two or more tensors [n] of one type (float16, float32 or int32), that of shard i at index i;
            shorter ones are padded with zeros.
        op: COLLECTIVE_OP_ADD, _MUL, _MIN, _MAX, _LOGICAL_AND, _LOGICAL_OR, _SQUARE_ADD or _MEAN.

    Returns:
        A tuple with the reduction for each shard, of the length of the longest tensor.

    Raises:
        ValueError: as `all_gather`; also for another rank or operation.
    """
    stacked = _stacked(input_shards)
    return (REDUCTIONS[_operation(op, REDUCTIONS)](stacked),) * len(input_shards)


def reduce_scatter(input_shards: Sequence[TensorLike], op: str = "COLLECTIVE_OP_ADD") -> tuple[tf.Tensor, ...]:
    """Reduces the tensors of all shards; every shard gets a slice of the result.

    Args:
        input_shards: as for `all_reduce`.
        op: as for `all_reduce`, or COLLECTIVE_OP_LOCAL, which takes each shard's slice of its own tensor.

    Returns:
        For each of the S shards its slice, [ceil(n / S)], of the result, which is padded with zeros.

    Raises:
        ValueError: as `all_reduce`.
    """
    operation = _operation(op, (*REDUCTIONS, "LOCAL"))
    stacked = _stacked(input_shards)
    count, length = stacked.shape.as_list()
    size = -(-length // count)
    results = tf.unstack(stacked) if operation == "LOCAL" else [REDUCTIONS[operation](stacked)] * count
    padded = [tf.pad(result, [[0, size * count - length]]) for result in results]
    return tuple(result[number * size : (number + 1) * size] for number, result in enumerate(padded))


def _checked(input_shards: Sequence[TensorLike]) -> list[tf.Tensor]:
    shards = [tf.convert_to_tensor(shard) for shard in input_shards]
    require(len(shards) > 1, "tensors of two or more shards", len(shards))
    types, ranks = {shard.dtype for shard in shards}, {shard.shape.rank for shard in shards}
    known = len(types) == 1 and types.issubset(TYPES)
    require(known, "one type of float16, float32 or int32", ", ".join(sorted(each.name for each in types)))
    require(len(ranks) == 1 and None not in ranks, "tensors of one rank", [shard.shape for shard in shards])
    graph_shards = [] if tf.executing_eagerly() else [shard.op for shard in shards if has_attr(shard.op, SHARD)]
    placed = [op.node_def.attr[SHARD].s for op in graph_shards]
    require(len(set(placed)) == len(placed), "each tensor on another IPU", "several on one")
    return shards


def _stacked(input_shards: Sequence[TensorLike]) -> tf.Tensor:
    """[shards, n]: the tensors, padded with zeros."""
    shards = _checked(input_shards)
    shapes = [shard.shape for shard in shards]
    require(shapes[0].rank == 1 and all(each.is_fully_defined() for each in shapes), "tensors of rank 1", shapes)
    lengths = [shape.num_elements() for shape in shapes]
    padded = [tf.pad(each, [[0, max(lengths) - length]]) for each, length in zip(shards, lengths, strict=True)]
    return tf.stack(padded)


def _operation(op: str, names: Any) -> str:
    name = str(op).removeprefix(PREFIX)
    known = str(op).startswith(PREFIX) and name in names
    require(known, f"op to be one of {', '.join(PREFIX + each for each in names)}", repr(op))
    return name
