"""`tensorflow.compiler.plugin.poplar.ops.gen_pop_datastream_ops`: queues by their feed names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from engine.ir.device_operations import INFEED
from ipu._internal.compiler.device_calls import ordered_call, require_trace
from ipu._internal.graphs.session_operations import in_eager_or_graph
from ipu._internal.names.namespace import public_names
from ipu._internal.queues.enqueueing import enqueue
from ipu._internal.queues.registry import endpoint_of
from ipu._internal.types import Nest, TensorLike

__all__ = [
    "ipu_delete_infeed",
    "ipu_delete_outfeed",
    "pop_datastream_infeed_dequeue",
    "pop_datastream_outfeed_enqueue",
]
__getattr__, __dir__ = public_names(__name__, __all__)


def ipu_delete_infeed(feed_id: str, asynchronous: bool = False, name: str | None = None) -> tf.Operation | None:
    """Deletes the infeed queue of that name: its `deleter`, an operation in a tf.Graph."""
    return in_eager_or_graph(_deletion(feed_id))


def ipu_delete_outfeed(feed_id: str, asynchronous: bool = False, name: str | None = None) -> tf.Operation | None:
    """Deletes the outfeed queue of that name: its `deleter`, an operation in a tf.Graph."""
    return in_eager_or_graph(_deletion(feed_id))


def pop_datastream_infeed_dequeue(
    feed_id: str, output_types: Sequence[Any], output_shapes: Sequence[Any], name: str | None = None, **options: Any
) -> list[tf.Tensor]:
    """The leaves of the next element of the infeed queue of that name, on the device.

    Args:
        feed_id: the queue's `feed_name`.
        output_types: the dtype of each leaf.
        output_shapes: the static shape of each leaf.
        name: optional name of the operation.
        **options: `replication_factor` and `prefetch_depth`, which have no effect here.

    Returns:
        A list of tensors.

    Raises:
        RuntimeError: called outside of a function that runs on the IPU.
    """
    require_trace("elements of an infeed queue to be taken")
    specs = [tf.TensorSpec(s, t) for s, t in zip(output_shapes, output_types, strict=True)]
    return list(ordered_call(INFEED, [], {"queue": feed_id}, specs)[0])


def pop_datastream_outfeed_enqueue(
    inputs: Sequence[TensorLike], output_shapes: Nest = None, feed_id: str = "", name: str | None = None, **options: Any
) -> tf.Operation:
    """Enqueues tensors to the outfeed queue of that name, on the device.

    Args:
        inputs: the leaves of an element.
        output_shapes: their shapes, which `inputs` have, too.
        feed_id: the queue's `feed_name`.
        name: optional name of the operation.
        **options: `outfeed_mode`, `replication_factor` and `prefetch_depth`, which are those of the queue.

    Returns:
        The operation.

    Raises:
        RuntimeError: called outside of a function that runs on the IPU.
    """
    require_trace("an outfeed queue's enqueue")
    return enqueue(feed_id, [tf.convert_to_tensor(each) for each in inputs])


def _deletion(feed_id: str) -> Callable[[], None]:
    return lambda: endpoint_of(feed_id).delete()
