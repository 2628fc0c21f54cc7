"""IPUInfeedQueue and the iterators over it: data sets whose elements the device takes inside a running program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from engine.errors import ConfigurationError
from engine.integers import checked_integer
from engine.ir.device_operations import INFEED
from ipu._internal.compiler.device_calls import ordered_call, require_trace
from ipu._internal.config.deprecation import deprecated_arguments
from ipu._internal.graphs.session_operations import (
    building_graph,
    in_eager_or_graph,
    session_operation,
    variant_operation,
)
from ipu._internal.graphs.variables import Session, session_run
from ipu._internal.queues.checks import DEDUCED, check_device, check_ordinal
from ipu._internal.queues.deprecated_arguments import INFEED as DEPRECATED
from ipu._internal.queues.elements import check_feedable, check_specs, is_feedable, leaf_shapes, packed, tuple_elements
from ipu._internal.queues.feeder import automatic_depth
from ipu._internal.queues.infeed import InfeedEndpoint
from ipu._internal.queues.row_elements import RowElements, rows_of
from ipu._internal.types import Nest

v1 = tf.compat.v1

DEFAULT_PREFETCH_DEPTH, MAXIMAL_PREFETCH_DEPTH = 3, 255


class IPUInfeedQueue:
    """Feeds the elements of a tf.data.Dataset to programs on the device (section 18.4).

    Each iteration of a loop takes one element, with R replicas R elements: element i goes to replica i mod R. Elements
    read ahead are kept between two runs. A run that reaches the end of the data set raises tf.errors.OutOfRangeError,
    and a failing data set its own error; variables are as before the run then. Under
    TF_POPLAR_FLAGS=--use_synthetic_data the data set is not read, and all elements are zeros by default.

    Args:
        dataset: a tf.data.Dataset of dense tensors with fully defined shapes and of dtypes int32, float32, float16,
            bool, int8 or uint8.
        feed_name: deprecated; a name unique among all queues; one is generated if it is None.
        device_ordinal: the device whose programs use the queue; a program of another device is refused. By default it
            is that of the strategy in whose scope the queue is made, 0 outside of one. None is the
            device of the program that uses it.
        replication_factor: deprecated and ignored; it is the number of replicas of the program.
        data_to_prefetch: deprecated and ignored; use prefetch_depth.
        prefetch_depth: number of elements to read ahead for each replica, up to 255; None or 0 means 3, and
            up to 128 of small ones, 1 MiB in all.
        optimise_latency: accepted; the queue has the least latency in any case.

    Raises:
        ValueError: shapes are not fully defined, arguments are out of range, or feed_name is taken.
    """

    @deprecated_arguments("IPUInfeedQueue", **DEPRECATED)
    def __init__(
        self,
        dataset: tf.data.Dataset,
        feed_name: str | None = None,
        device_ordinal: int | None = DEDUCED,
        replication_factor: int = 1,
        data_to_prefetch: int = 1,
        prefetch_depth: int | None = None,
        optimise_latency: bool = False,
    ) -> None:
        element_spec = tf.data.experimental.get_structure(dataset)
        self._dataset = dataset  # read by dataset_benchmark and utils
        check_specs(element_spec)
        self._device_ordinal = check_ordinal(device_ordinal)
        self._prefetch_depth = checked_integer(
            "prefetch_depth", prefetch_depth or DEFAULT_PREFETCH_DEPTH, 1, MAXIMAL_PREFETCH_DEPTH
        )
        self._element_spec = element_spec
        self._endpoint: InfeedEndpoint | None = None
        self._dequeued = self._has_initializer = False
        if is_feedable(element_spec):
            shapes = leaf_shapes(element_spec)
            depth = self._prefetch_depth if prefetch_depth else automatic_depth(shapes, DEFAULT_PREFETCH_DEPTH)
            self._endpoint = InfeedEndpoint(feed_name, dataset, shapes, depth)

    @property
    def initializer(self) -> Any:
        """Starts with the first element, also after `deleter`: at once outside of a tf.Graph (eagerly it is None).

        In a tf.Graph sessions run the operation, which starts with the first element whenever it is run.

        Raises:
            ValueError: it has been called already, without `deleter` since; in a graph, a second time.
            tf.errors.FailedPreconditionError: a dtype that the device does not take.
            tf.errors.InvalidArgumentError: a tensor of no elements.
        """
        check_feedable(self._element_spec)
        assert self._endpoint is not None
        if not building_graph():
            self._endpoint.initialise()
            return tf.no_op()
        if self._has_initializer:
            raise ConfigurationError(
                "Expected initializer of an infeed queue to be read once in a graph. Received: a second time. Keep the "
                "operation, and run it again in another session."
            )
        self._has_initializer = True
        shapes, restart = leaf_shapes(self._element_spec), self._endpoint.restart
        if has_tables():
            return read_by_session(self._dataset, lambda elements: restart(elements, None))
        sequence, numbers = rows_of(self._dataset) or (None, None)
        read = self._dataset if numbers is None else numbers
        spec = read.element_spec

        def initialise(variant: tf.Tensor, *tensors: tf.Tensor) -> tf.Tensor:
            dataset = tf.data.experimental.from_variant(variant, spec)
            in_order = dataset if numbers is not None else None
            restart(dataset, None if sequence is None else RowElements(sequence, tensors, shapes, in_order))
            return tf.constant(0)

        inputs = [tf.data.experimental.to_variant(read), *(sequence.tensors if sequence else ())]
        return variant_operation(initialise, inputs, tf.TensorSpec([], tf.int32)).op

    @property
    def deleter(self) -> Any:
        """Deletes the state of `initializer`: at once, or in a tf.Graph by an operation that sessions run.

        Raises:
            tf.errors.NotFoundError: the queue has not been initialized.
            tf.errors.FailedPreconditionError: a program uses the queue.
        """
        assert self._endpoint is not None
        return in_eager_or_graph(self._endpoint.delete)

    @property
    def dequeued(self) -> bool:
        """Whether a traced function takes elements from the queue."""
        return self._dequeued

    @property
    def number_of_tuple_elements(self) -> int:
        """Number of arguments of a loop's body for an element."""
        return tuple_elements(self._element_spec)

    @property
    def element_spec(self) -> Any:
        """The structure of an element, of tf.TensorSpec."""
        return self._element_spec

    def get_next(self) -> None:
        """Raises ValueError, as the method is obsolete.

        Raises:
            ValueError: always.
        """
        raise ValueError(
            "Expected an infeed queue to be given to a loop of ipu.loops. Received: a call of get_next, which is "
            "obsolete. Pass infeed_queue to loops.repeat or loops.while_loop."
        )

    def _dequeue(self) -> Any:
        """The next element, in a function that is traced for the device; raises RuntimeError elsewhere."""
        require_trace("elements of an infeed queue to be taken")
        check_device("infeed", self._device_ordinal)
        check_feedable(self._element_spec)
        assert self._endpoint is not None
        self._dequeued = True
        specs = tf.nest.flatten(self._element_spec)
        leaves, _ = ordered_call(INFEED, [], {"queue": self._endpoint.name}, specs)
        return packed(self._element_spec, leaves)


class IPUIterator:
    """An iterator whose `next()` dequeues an element of an infeed on the device (section 6.2).

    Args:
        dataset: the data set, see IPUInfeedQueue.
        element_spec: None, or the structure of the data set's elements.
        **kwargs: further arguments of IPUInfeedQueue.

    Raises:
        ValueError: no dataset, another element_spec than the data set's, or as IPUInfeedQueue.
    """

    def __init__(self, dataset: tf.data.Dataset | None = None, element_spec: Nest = None, **kwargs: Any) -> None:
        if dataset is None:
            raise ValueError("Expected a dataset for the iterator. Received: None.")
        self._infeed_queue = IPUInfeedQueue(dataset, **kwargs)
        if element_spec is not None and element_spec != self._infeed_queue.element_spec:
            raise ValueError(f"Expected element_spec {self._infeed_queue.element_spec}. Received: {element_spec}.")
        with tf.init_scope():
            _ = self._infeed_queue.initializer

    @property
    def element_spec(self) -> Any:
        """The structure of an element, of tf.TensorSpec."""
        return self._infeed_queue.element_spec

    def __iter__(self) -> IPUIterator:
        """The iterator itself. Raises NotImplementedError in a function that runs on the device, which sees no end."""
        if not tf.executing_eagerly():
            raise NotImplementedError(
                "Expected `for _ in tf.range(n): x = next(iterator)`. Received: a for loop over the iterator itself, "
                "whose end the device does not know. Use the loop above, with n the number of elements to read."
            )
        return self

    def __next__(self) -> Any:
        return self.get_next()

    def get_next(self) -> Any:
        """The next element. Raises RuntimeError outside of a tf.function that runs on the device."""
        require_trace(
            "next() of a dataset iterator of an IPUStrategy's scope",
            "To read elements on the host, call iter(dataset) outside of the scope.",
        )
        return self._infeed_queue._dequeue()

    def get_next_as_optional(self) -> Any:
        """Raises NotImplementedError, as an IPU lacks optional elements.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError("Expected next(iterator). Received: get_next_as_optional, which an IPU lacks.")

    def _serialize_to_tensors(self) -> Any:
        raise NotImplementedError("Expected objects other than an IPU's iterator in a checkpoint. Received: one.")


class IPUOwnedIterator(IPUIterator):
    """Result of `iter(dataset)` in an IPUStrategy's scope; its infeed queue is deleted with it.

    Args:
        dataset: the data set, see IPUInfeedQueue.
        element_spec: None, or the structure of the data set's elements.
        **kwargs: further arguments of IPUInfeedQueue.

    Raises:
        ValueError: no dataset, another element_spec than the data set's, or as IPUInfeedQueue.
    """


def has_tables() -> bool:
    """Whether the default graph has lookup tables."""
    return bool(v1.get_collection(v1.GraphKeys.TABLE_INITIALIZERS))


def read_by_session(dataset: tf.data.Dataset, start: Callable[[tf.data.Dataset], Any]) -> tf.Operation:
    """An operation that calls `start` with the elements of a data set, which the session that executes it reads."""
    iterator = v1.data.make_initializable_iterator(dataset)
    element = iterator.get_next()

    def elements(session: Session) -> Iterator[Nest]:
        try:
            while True:
                values = session_run(session, {}, tf.nest.flatten(element), [])
                yield tf.nest.pack_sequence_as(element, values)
        except tf.errors.OutOfRangeError:
            return

    def begin(session: Session) -> None:
        start(tf.data.Dataset.from_generator(lambda: elements(session), output_signature=dataset.element_spec))

    with tf.control_dependencies([iterator.initializer]):
        return session_operation(begin)
