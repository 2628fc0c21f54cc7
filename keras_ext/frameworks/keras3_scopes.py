"""Name scopes of Keras 3's layers, named as the layers: operations of `dense` are in `dense`, not in `dense_1`.

Keras enters a layer's scope twice for each call, and TensorFlow numbers a scope whose name it has seen: `dense_1` in
an error or a report may then be `dense`. While a step is traced a layer re-enters its own scope.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf
from keras.src.backend.tensorflow import core

from ipu._internal.thread_values import ThreadValue
from keras_ext.wrapping import Original, wrap

Key = tuple[int, str, int, str]
_entered: ThreadValue[dict[Key, str] | None] = ThreadValue(None)


def own_scopes() -> AbstractContextManager[Any]:
    """Lets a layer that is called again in a scope re-enter the same scope, on this thread, while the context is
    open.
    """
    return _entered.replaced_by({})


def install() -> None:
    """Wraps Keras' scopes; outside `own_scopes` they behave as before."""
    wrap(core.name_scope, "__enter__", _enter)


def _enter(original: Original, scope: core.name_scope) -> Any:
    entered = _entered.value
    if entered is None or scope.caller is None:
        return original(scope)
    outside = tf.get_current_name_scope()
    key = (id(tf.compat.v1.get_default_graph()), outside, id(scope.caller), scope.name)
    if key in entered:
        scope._tf_name_scope = tf.name_scope(entered[key])
    result = original(scope)
    inside = tf.get_current_name_scope()
    if inside != outside:
        entered.setdefault(key, f"{inside}/")
    return result
