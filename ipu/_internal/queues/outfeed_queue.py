"""IPUOutfeedQueue: tensors that a running program sends to the host, one row for each enqueue."""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterator
from enum import Enum
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import ops

from engine.errors import ConfigurationError
from engine.integers import checked_integer
from ipu._internal.compiler.device_calls import require_trace
from ipu._internal.compiler.variables import in_symbolic_graph
from ipu._internal.config.deprecation import warn_of_arguments
from ipu._internal.config.system import current_system
from ipu._internal.graphs.session_operations import building_graph, host_operation, in_eager_or_graph
from ipu._internal.queues.checks import DEDUCED, check_device, check_ordinal
from ipu._internal.queues.deprecated_arguments import OUTFEED as DEPRECATED
from ipu._internal.queues.enqueueing import enqueue
from ipu._internal.queues.outfeed import OutfeedEndpoint
from ipu._internal.types import Nest

DEFAULT_BUFFER_DEPTH, MAXIMAL_BUFFER_DEPTH = 3, 2**31 - 1
EMPTY_SECONDS = 0.0005
"""Wait of an iterator that finds nothing, in seconds, so that polling loops leave the processor to the engine."""


class IPUOutfeedMode(Enum):
    """The enqueued elements that an IPUOutfeedQueue returns: `ALL`, or only the `LAST`."""

    ALL = "all"
    LAST = "last"


class IPUOutfeedQueue:
    """Receives elements from running programs on the device (section 18.5).

    Under TF_POPLAR_FLAGS=--use_synthetic_data it receives nothing: mode ALL gives no rows, mode LAST raises.

    Args:
        feed_name: deprecated; a name unique among all queues; one is generated if it is None.
        outfeed_mode: an IPUOutfeedMode; None means ALL.
        device_ordinal: the device whose programs use the queue; a program of another device is refused. By default it
            is that of the strategy in whose scope the queue is made, 0 outside of one. None is the
            device of the program that uses it.
        replication_factor: deprecated and ignored; it is the number of replicas of the program.
        io_batch_size: deprecated and ignored.
        buffer_depth: least capacity of the device's buffer, in elements.
        optimise_latency: accepted; the queue has the least latency in any case.

    Raises:
        ValueError: arguments are of the wrong type or out of range, or feed_name is taken.
    """

    def __init__(
        self,
        feed_name: str | IPUOutfeedMode | None = None,
        outfeed_mode: IPUOutfeedMode | None = None,
        device_ordinal: int | None = DEDUCED,
        replication_factor: int | None = None,
        io_batch_size: int = 1,
        buffer_depth: int = DEFAULT_BUFFER_DEPTH,
        optimise_latency: bool = False,
    ) -> None:
        if isinstance(feed_name, IPUOutfeedMode):
            # Releases without feed_name have the mode as their first argument.
            feed_name, outfeed_mode = None, feed_name
        given = {"feed_name": feed_name, "replication_factor": replication_factor, "io_batch_size": io_batch_size - 1}
        warn_of_arguments("IPUOutfeedQueue", (name for name, value in given.items() if value), DEPRECATED)
        mode = IPUOutfeedMode.ALL if outfeed_mode is None else outfeed_mode
        if not isinstance(mode, IPUOutfeedMode):
            raise ValueError(f"Expected outfeed_mode to be an IPUOutfeedMode. Received: {mode!r}.")
        self._outfeed_mode = mode
        self._device_ordinal = check_ordinal(device_ordinal)
        depth = checked_integer("buffer_depth", buffer_depth, 1, MAXIMAL_BUFFER_DEPTH)
        self._endpoint = OutfeedEndpoint(feed_name, mode is IPUOutfeedMode.LAST, depth)
        self._graphs: weakref.WeakSet[Any] = weakref.WeakSet()
        self._structure: Any = None
        self._specs: list[tf.TensorSpec] = []
        self._registered = self._fixed = False

    @property
    def enqueued(self) -> bool:
        """Whether a traced function enqueues to the queue."""
        return self._registered

    def enqueue(self, tensors: Nest) -> Any:
        """Enqueues a tensor, or a tuple, list or dict of tensors, also nested; returns the operation that does it.

        Layers and optimizers of Keras models may call it: in `fit` a layer enqueues for each micro-batch, and tensors
        that depend on accumulated gradients are enqueued once per update. While Keras infers shapes it does nothing.

        Args:
            tensors: a tensor, or a tuple, list or dict of tensors, also nested, of static shapes.

        Returns:
            The operation that enqueues the tensors.

        Raises:
            ValueError: a second call in one graph, no tensors, or shapes that are not fully defined.
            RuntimeError: called outside of a tf.function that runs on the device.
            tf.errors.FailedPreconditionError: another structure, shape or dtype than before.
        """
        if in_symbolic_graph():
            return tf.no_op()  # Keras infers shapes; the graph is never executed
        require_trace("an outfeed queue's enqueue")
        check_device("outfeed", self._device_ordinal)
        leaves = [tf.convert_to_tensor(leaf) for leaf in tf.nest.flatten(tensors)]
        for leaf in leaves:
            if not leaf.shape.is_fully_defined():
                raise ValueError(
                    f"Expected tensors of fully defined shapes to enqueue. Received: {leaf.name!r} of {leaf.op.type}, "
                    f"of shape {leaf.shape}. Enqueue a fixed number of elements, such as a mask, or call set_shape()."
                )
        self._check_specs(tensors, [tf.TensorSpec(leaf.shape, leaf.dtype) for leaf in leaves])
        self._enter(ops.get_default_graph())
        return enqueue(self._endpoint.name, leaves)

    def _check_specs(self, tensors: Nest, specs: list[tf.TensorSpec]) -> None:
        if not specs:
            raise ValueError("Expected at least one tensor to enqueue. Received: none.")
        structure = tf.nest.map_structure(lambda leaf: None, tensors)
        if self._fixed and (specs != self._specs or structure != self._structure):
            raise tf.errors.FailedPreconditionError(
                None,
                None,
                f"Expected all elements of an outfeed queue to be alike: {_described(self._structure, self._specs)}. "
                f"Received: {_described(structure, specs)}. Use another queue for them, or delete this one first.",
            )
        self._structure, self._specs, self._registered, self._fixed = structure, specs, True, True

    def _enter(self, graph: tf.Graph) -> None:
        outer = graph
        while outer is not None:
            if outer in self._graphs:
                raise ValueError(
                    "An outfeed can only be enqueued once. Received: a second enqueue in one graph. "
                    "Enqueue a tuple or dict of tensors, or use another outfeed queue."
                )
            outer = getattr(outer, "outer_graph", None)
        self._graphs.add(graph)

    def dequeue(self, wait_for_completion: bool = False) -> Any:
        """All elements since the last call, with leaves [k, ...] of k elements; in mode LAST the last, leaves [...].

        With R > 1 replicas the leaves have an axis [R] before the element's own. Before any function enqueues, an empty
        list. With `wait_for_completion`, it waits for the end of a program that runs in another thread.
        In a tf.Graph the results are tensors, which dequeue in each run of a session that fetches them.

        Args:
            wait_for_completion: whether to wait for the end of a program that runs in another thread.

        Returns:
            The structure that was enqueued, its leaves as above; in a tf.Graph, tensors.

        Raises:
            ValueError: in a graph, before any function enqueues.
            tf.errors.FailedPreconditionError: mode LAST, and nothing has been enqueued since the last call.
        """
        if building_graph():
            return self._dequeue_in_graph(wait_for_completion)
        if not self._registered and self._outfeed_mode is IPUOutfeedMode.ALL:
            return []
        return self._packed([tf.constant(leaf) for leaf in self._take(wait_for_completion)])

    def _dequeue_in_graph(self, wait_for_completion: bool) -> Any:
        if not self._registered:
            raise ConfigurationError(
                "Expected dequeue after enqueue. Received: an outfeed queue to which no function enqueues yet. Call "
                "ipu_compiler.compile first."
            )
        is_last = self._outfeed_mode is IPUOutfeedMode.LAST
        # With several replicas the rank is only known when the program runs.
        known = current_system().device(self._device_ordinal or 0).ipus == 1
        shapes = [(spec.shape if is_last else [None, *spec.shape.as_list()]) if known else None for spec in self._specs]
        specs = [tf.TensorSpec(shape, spec.dtype) for shape, spec in zip(shapes, self._specs, strict=True)]
        return self._packed(host_operation(lambda: self._take(wait_for_completion), [], specs))

    def _take(self, wait_for_completion: bool) -> list[np.ndarray]:
        """Leaves of the rows that have been enqueued since the last call. Raises as `dequeue`."""
        if wait_for_completion:
            self._endpoint.wait_for_program()
        rows = self._endpoint.take_all()
        if self._outfeed_mode is IPUOutfeedMode.LAST:
            if rows is None:
                raise tf.errors.FailedPreconditionError(
                    None,
                    None,
                    "Trying to get the last value from an outfeed queue before it was executed. "
                    "Run a program that enqueues first; each element can be dequeued once.",
                )
            return [leaf[-1] for leaf in rows]
        return self._no_rows() if rows is None else rows

    def _no_rows(self) -> list[np.ndarray]:
        shapes = self._endpoint.row_shapes or [tuple(spec.shape.as_list()) for spec in self._specs]
        return [
            np.zeros((0, *shape), spec.dtype.as_numpy_dtype) for shape, spec in zip(shapes, self._specs, strict=True)
        ]

    def _packed(self, leaves: list[tf.Tensor]) -> Any:
        return tf.nest.pack_sequence_as(self._structure, leaves)

    @property
    def deleter(self) -> Any:
        """Drops all elements, shapes and the structure, at once outside of a tf.Graph. May be repeated.

        In a tf.Graph it is an operation that sessions run, and elements keep their shapes and structure.

        Raises:
            tf.errors.FailedPreconditionError: a program uses the queue.
        """
        self._fixed = building_graph() and self._fixed
        return in_eager_or_graph(self._endpoint.delete)

    def __iter__(self) -> IPUOutfeedQueueIterator:
        """The received elements, oldest first, until there is none; a queue may be iterated several times.

        Raises RuntimeError in mode LAST, and inside a tf.function.
        """
        if not tf.executing_eagerly():
            raise RuntimeError("Expected to iterate over an outfeed queue outside of tf.function. Received: inside.")
        if self._outfeed_mode is not IPUOutfeedMode.ALL:
            raise RuntimeError("Expected an outfeed queue of mode ALL to iterate over. Received: one of mode LAST.")
        return IPUOutfeedQueueIterator(self)


class IPUOutfeedQueueIterator(Iterator[Any]):
    """One pass over the elements that an outfeed queue has received: one for each enqueue.

    Args:
        outfeed_queue: the queue, of mode ALL.
    """

    def __init__(self, outfeed_queue: IPUOutfeedQueue) -> None:
        self._queue = outfeed_queue
        self._fresh = True

    def __next__(self) -> Any:
        row = self._queue._endpoint.take_one()
        if row is None and self._fresh:
            time.sleep(EMPTY_SECONDS)
            row = self._queue._endpoint.take_one()
        self._fresh = False
        if row is None:
            raise StopIteration
        return self._queue._packed([tf.constant(leaf) for leaf in row])


class ScopedIPUOutfeedQueue(IPUOutfeedQueue):
    """An outfeed queue that deletes itself when it is no longer used: for eager programs only.

    Raises:
        RuntimeError: inside a tf.function.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if not tf.executing_eagerly():
            raise RuntimeError("Expected a ScopedIPUOutfeedQueue to be made outside of tf.function. Received: inside.")
        super().__init__(*args, **kwargs)


def _described(structure: Nest, specs: list[tf.TensorSpec]) -> str:
    return str(tf.nest.pack_sequence_as(structure, [f"{s.dtype.name}{s.shape.as_list()}" for s in specs]))
