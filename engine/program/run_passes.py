"""Runs passes over programs: functions from a program to an equivalent, better one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator

from engine.program.program import Program

Pass = Callable[[Program], Program]
Listener = Callable[[str, Program], None]
_listeners: list[Listener] = []


def run_passes(program: Program, passes: Iterable[Pass]) -> Program:
    """The program after all passes; the given one stays unchanged."""
    for each in passes:
        program = each(program)
        for listener in _listeners:
            listener(each.__name__, program)
    return program


@contextlib.contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Passes the name and the result of each pass on any thread to the listener, while the context is open."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)
