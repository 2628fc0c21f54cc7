"""The tokens of each device: integer variables whose updates keep the device's side effects in program order.

Outside of pipelines a device has one. Each stage of a pipeline has one of its own, as stages do not wait for others.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.framework import ops

from engine.ir import Shape
from engine.ir.value_checks import CHECK_TOKEN
from engine.runtime.buffers import DeviceBuffer
from ipu._internal.compiler.variables import IPUVariable
from ipu._internal.thread_values import ThreadValue

_lock = threading.Lock()
_tokens: dict[tuple[int, str], IPUVariable] = {}
_chain = ThreadValue("")
_ordinal: ThreadValue[int | None] = ThreadValue(None)


def own_chain(name: str) -> contextlib.AbstractContextManager[str]:
    """Orders side effects that are traced while the context is open among themselves, but not with other chains."""
    return _chain.replaced_by(name)


def device_token() -> IPUVariable:
    """The token of the device of the strategy in scope, in the current chain; created on first use."""
    key = (current_ordinal(), _chain.value)
    with _lock:
        if key not in _tokens:
            # Programs of several graphs share it: eager, even where the outermost graph is a tf.Graph.
            with ops.init_scope(), context.eager_mode(), tf.device("/device:CPU:0"):
                name = f"ipu_token_{_chain.value}".rstrip("_")
                _tokens[key] = IPUVariable(initial_value=0, dtype=tf.int32, trainable=False, name=name)
        return _tokens[key]


def is_token(variable: object) -> bool:
    """Whether a variable is a device's token, whose value is unused."""
    return isinstance(variable, CheckToken) or any(variable is token for token in _tokens.values())


class CheckToken:
    """The token of a value check in one program, whose value is unused, too."""

    name = CHECK_TOKEN
    escaped = False

    def __init__(self) -> None:
        self._buffer = DeviceBuffer(Shape("s32"))

    @property
    def lock_holder(self) -> CheckToken:
        """The token itself, which no other program has."""
        return self

    def device_buffer(self) -> DeviceBuffer:
        """The device's copy."""
        return self._buffer

    def device_written(self, run: object = None) -> None:
        """Does nothing: a token has no value to note."""


@contextlib.contextmanager
def chains_between(names: Sequence[str]) -> Iterator[None]:
    """Orders side effects of these chains, traced while the context is open, after earlier and before later ones."""
    outer, tokens = device_token(), []
    for name in names:
        with own_chain(name):
            tokens.append(device_token())
        tokens[-1].assign(outer.read_value(), read_value=False)
    yield
    outer.assign(tf.add_n([token.read_value() for token in tokens]), read_value=False)


def traced_for(ordinal: int) -> contextlib.AbstractContextManager[int | None]:
    """Traces a program of this device, whichever strategy is in scope, while the context is open."""
    return _ordinal.replaced_by(ordinal)


def current_ordinal() -> int:
    """The device whose program is traced, or that of the strategy in scope; 0 outside the scope of one."""
    if _ordinal.value is not None:
        return _ordinal.value
    strategy: Any = tf.distribute.get_strategy() if tf.distribute.has_strategy() else None
    return int(getattr(strategy, "ordinal", 0))
