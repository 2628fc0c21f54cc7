"""Automatic graph sharding: `automatic_sharding`, which sets the shards of a function's operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

import tensorflow as tf

from engine.errors import ConfigurationError
from ipu import sharding
from ipu._internal.compiler.traced_pipelines import note_ipus
from ipu._internal.names.namespace import public_names
from ipu.scopes import SHARD, sharding_of, takes_shard

__all__ = ["automatic_sharding"]

Edge = tuple[str, str]


def automatic_sharding(
    num_shards: int,
    input_ts: tf.Tensor,
    loss_ts: tf.Tensor,
    edge_filter: Callable[[Edge], bool] | None = None,
    frozen_inference: bool = False,
) -> None:
    """Sets shards for all operations between an input and the loss, as `scopes.ipu_shard` does.

    Operations are split in their order, so that the bytes of results and variables are as even as possible over the
    shards. Call it in the function that runs on the device, after the optimizer's `minimize`. A gradient's operation
    gets the shard of its forward operation if it is colocated with it, as ShardedOptimizer does.

    Args:
        num_shards: number of shards (IPUs) to split over.
        input_ts: the tensor closest to the data feed.
        loss_ts: the tensor closest to the loss.
        edge_filter: called with the names of the operations at the ends of an edge; where it returns True the graph is
            not split.
        frozen_inference: accepted; constants count like variables in any case.

    Raises:
        ValueError: `num_shards` is no positive integer, the loss does not depend on the input, or there are fewer
            places to split than shards need.
    """
    if isinstance(num_shards, bool) or not isinstance(num_shards, int) or num_shards < 1:
        raise ConfigurationError(f"Expected num_shards to be an integer of at least 1. Received: {num_shards!r}.")
    needed = sharding.dependencies([loss_ts])
    after: set[tf.Operation] = {input_ts.op}
    chain = []
    for operation in loss_ts.graph.get_operations():  # they are in the order of their dependencies
        if operation in needed and any(tensor.op in after for tensor in operation.inputs):
            after.add(operation)
            chain.append(operation)
    if not chain:
        raise ConfigurationError(
            f"Expected a loss that depends on the input. Received: {loss_ts.name!r} and {input_ts.name!r}. Choose two "
            f"tensors of one function."
        )
    seen = set(after)
    own = []
    for operation in chain:
        # Variables, constants, and tensors computed from these alone.
        side = sharding.dependencies(tensor.op for tensor in operation.inputs if tensor.op not in seen) - seen
        seen |= side
        own.append([operation, *side])
    sizes = list(accumulate(sum(map(_bytes, operations)) for operations in own))
    starts = [0, *_splits(chain, sizes, num_shards, edge_filter), len(chain)]
    for shard in range(num_shards):
        for operation in (each for group in own[starts[shard] : starts[shard + 1]] for each in group):
            if takes_shard(operation.type):
                operation._set_attr(SHARD, sharding_of(shard))
    with loss_ts.graph.as_default():
        note_ipus(((num_shards - 1,),))
    sharding.propagate_sharding(loss_ts.graph)


def _bytes(operation: tf.Operation) -> int:
    """The bytes of an operation's results of known shape, plus one."""
    sizes = [(tensor.shape.num_elements() or 0) * tensor.dtype.size for tensor in operation.outputs]
    return 1 + sum(sizes)


def _splits(
    chain: Sequence[tf.Operation], sizes: Sequence[int], shards: int, edge_filter: Callable[[Edge], bool] | None
) -> list[int]:
    """The numbers of the operations with which the second shard and the following ones begin.

    `sizes[i]` is the size in bytes of the operations up to and with `chain[i]`.
    """
    place = {operation: number for number, operation in enumerate(chain)}
    allowed = set(range(1, len(chain)))
    for operation in chain if edge_filter else ():
        for source in {tensor.op for tensor in operation.inputs} & place.keys():
            if edge_filter is not None and edge_filter((source.name, operation.name)):
                allowed -= set(range(place[source] + 1, place[operation] + 1))
    if len(allowed) < shards - 1:
        raise ConfigurationError(
            f"Expected at most {len(allowed) + 1} shards of {len(chain)} operations, for there are no other places to "
            f"split them. Received: {shards}. Nearest: {len(allowed) + 1}."
        )
    found: list[int] = []
    for shard in range(1, shards):
        even = sizes[-1] * shard / shards
        later = sorted(number for number in allowed if not found or number > found[-1])
        later = later[: len(later) - (shards - 1 - shard)]  # leaves a place for each of the following shards
        found.append(min(later, key=lambda number: abs(sizes[number - 1] - even)))
    return found


__getattr__, __dir__ = public_names(__name__, __all__)
