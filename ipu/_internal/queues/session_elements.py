"""Elements of a data set with lookup tables, which a session holds: that session reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from ipu._internal.graphs.host_operations import session_operation
from ipu._internal.graphs.variables import Session, session_run
from ipu._internal.types import Nest

v1 = tf.compat.v1
MOST_BYTES, MOST_ELEMENTS = 1 << 20, 64
"""Of elements that one `Session.run` reads, as it takes some tenths of a millisecond."""


def has_tables() -> bool:
    """Whether the default graph has lookup tables."""
    return bool(v1.get_collection(v1.GraphKeys.TABLE_INITIALIZERS))


def read_by_session(dataset: tf.data.Dataset, start: Callable[[tf.data.Dataset], Any]) -> tf.Operation:
    """An operation that calls `start` with the elements of a data set, which the session that executes it reads."""
    iterator = v1.data.make_initializable_iterator(dataset.batch(_elements_at_once(dataset.element_spec)))
    batch = iterator.get_next()

    def elements(session: Session) -> Iterator[Nest]:
        try:
            while True:
                for values in zip(*session_run(session, {}, tf.nest.flatten(batch), []), strict=True):
                    yield tf.nest.pack_sequence_as(batch, values)
        except tf.errors.OutOfRangeError:
            return

    def begin(session: Session) -> None:
        start(tf.data.Dataset.from_generator(lambda: elements(session), output_signature=dataset.element_spec))

    with tf.control_dependencies([iterator.initializer]):
        return session_operation(begin)


def _elements_at_once(spec: Nest) -> int:
    """How many elements one `Session.run` reads: one where shapes may differ."""
    specs = tf.nest.flatten(spec)
    if not all(isinstance(each, tf.TensorSpec) and each.shape.is_fully_defined() for each in specs):
        return 1
    element_bytes = sum(each.dtype.size * each.shape.num_elements() for each in specs)
    return max(1, min(MOST_ELEMENTS, MOST_BYTES // max(1, element_bytes)))
