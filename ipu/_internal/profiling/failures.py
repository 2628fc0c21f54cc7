"""Who wants to know of a model's program that does not fit into the chip's memory, before its error is raised."""

from __future__ import annotations

from collections.abc import Callable

from engine.errors import OutOfTileMemory

Listener = Callable[[OutOfTileMemory], None]
_LISTENERS = "_ipu_memory_listeners"


def listen(model: object, listener: Listener) -> None:
    """Calls `listener` with each such error of the model's programs from now on."""
    listeners = vars(model).setdefault(_LISTENERS, [])
    if listener not in listeners:
        listeners.append(listener)


def listen_no_more(model: object, listener: Listener) -> None:
    """Does not any longer; fine for one that never did."""
    listeners = vars(model).get(_LISTENERS, [])
    if listener in listeners:
        listeners.remove(listener)


def tell(model: object, error: OutOfTileMemory) -> None:
    """Calls the listeners of the model whose program does not fit."""
    for listener in list(vars(model).get(_LISTENERS, ())):
        listener(error)
