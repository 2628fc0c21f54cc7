"""Listeners for a model's program that does not fit into the chip's memory, before its error is raised."""

from __future__ import annotations

from collections.abc import Callable

from engine.errors import OutOfTileMemory

Listener = Callable[[OutOfTileMemory], None]
_LISTENERS = "_ipu_memory_listeners"


def listen(model: object, listener: Listener) -> None:
    """Calls `listener` with each later OutOfTileMemory of the model's programs."""
    listeners = vars(model).setdefault(_LISTENERS, [])
    if listener not in listeners:
        listeners.append(listener)


def listen_no_more(model: object, listener: Listener) -> None:
    """Removes a listener, if it is there."""
    listeners = vars(model).get(_LISTENERS, [])
    if listener in listeners:
        listeners.remove(listener)


def call_listeners(model: object, error: OutOfTileMemory) -> None:
    """Calls the listeners of a model whose program does not fit."""
    for listener in list(vars(model).get(_LISTENERS, ())):
        listener(error)
