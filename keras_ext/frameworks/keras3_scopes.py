"""Name scopes of Keras 3's layers as the layers are called: operations of `dense` lie in `dense`, not in `dense_1`.

Keras enters a layer's scope twice for each call, and TensorFlow numbers a scope of a name that it has seen: what an
error or a report then says of `dense_1` may be of `dense`. While a step is traced a layer comes back to its own scope.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from keras.src.backend.tensorflow import core

Key = tuple[int, str, int, str]
_tracing = threading.local()


@contextlib.contextmanager
def own_scopes() -> Iterator[None]:
    """Within, on this thread, a layer that is called again in a scope enters the same scope again."""
    before = getattr(_tracing, "entered", None)
    _tracing.entered = {}
    try:
        yield
    finally:
        _tracing.entered = before


def install() -> None:
    """Makes Keras' scopes ask; without `own_scopes` they are as they were."""
    original = core.name_scope.__enter__
    if getattr(original, "_ipu_installed", False):
        return

    @functools.wraps(original)
    def enter(self: core.name_scope) -> Any:
        entered: dict[Key, str] | None = getattr(_tracing, "entered", None)
        if entered is None or self.caller is None:
            return original(self)
        outside = tf.get_current_name_scope()
        key = (id(tf.compat.v1.get_default_graph()), outside, id(self.caller), self.name)
        if key in entered:
            self._tf_name_scope = tf.name_scope(entered[key])
        result = original(self)
        inside = tf.get_current_name_scope()
        if inside != outside:
            entered.setdefault(key, f"{inside}/")
        return result

    enter._ipu_installed = True  # type: ignore[attr-defined]
    core.name_scope.__enter__ = enter
