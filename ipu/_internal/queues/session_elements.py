"""Elements of a data set with lookup tables, which a session holds: that session reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from ipu._internal.graphs.session_operations import session_operation
from ipu._internal.graphs.variables import Session, session_run
from ipu._internal.types import Nest

v1 = tf.compat.v1


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
