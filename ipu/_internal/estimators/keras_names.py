"""Names of Keras' layers in the graphs of an estimator."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

NAMES = "object_name_uids"


@contextmanager
def fresh_keras_names() -> Iterator[None]:
    """Restarts the numbers of Keras 3's layers: checkpoints need the same names of variables in each graph.

    tf_keras numbers its layers in each graph anyway.
    """
    state = sys.modules.get("keras.src.backend.common.global_state")
    if state is None:
        yield
        return
    before = state.get_global_attribute(NAMES)
    state.set_global_attribute(NAMES, None)
    try:
        yield
    finally:
        state.set_global_attribute(NAMES, before)
