"""Data sets with lookup tables, which are a session's: sessions of their graph read the elements."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from ipu._internal.types import Nest

v1 = tf.compat.v1


def read_by_sessions(dataset: tf.data.Dataset, feeds: dict[Any, np.ndarray], config: Any) -> tf.data.Dataset:
    """The elements of a data set of the default graph; each pass has a session, which initializes the tables.

    The session has `config`, and is fed `feeds`.
    """
    iterator = v1.data.make_initializable_iterator(dataset)
    graph, tables, element = v1.get_default_graph(), v1.tables_initializer(), iterator.get_next()

    def elements() -> Iterator[Nest]:
        session = v1.Session(graph=graph, config=config)
        try:
            session.run(tables, feeds)
            session.run(iterator.initializer, feeds)
            while True:
                yield session.run(element)
        except tf.errors.OutOfRangeError:
            return
        finally:
            session.close()

    return tf.data.Dataset.from_generator(elements, output_signature=dataset.element_spec)
