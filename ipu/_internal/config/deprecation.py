"""Marks functions and arguments that new programs should not use."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from ipu._internal.config.metadata import LOGGER
from ipu._internal.function_code import wraps

Function = TypeVar("Function", bound=Callable)


def deprecated(instructions: str) -> Callable[[Function], Function]:
    """Logs a warning at a function's first call, and says "(deprecated)" in its docstring."""

    def mark(function: Function) -> Function:
        warned = False

        @wraps(function)
        def wrapper(*arguments: object, **named: object) -> object:
            nonlocal warned
            if not warned:
                LOGGER.warning("%s is deprecated: %s", function.__name__, instructions)
                warned = True
            return function(*arguments, **named)

        summary, newline, rest = (function.__doc__ or "").partition("\n")
        wrapper.__doc__ = f"{summary} (deprecated){newline}{rest}"
        return wrapper

    return mark


_warned: set[tuple[str, str]] = set()


def warn_of_arguments(owner: str, given: Iterable[str], instructions: Mapping[str, str]) -> None:
    """Logs a warning for each given argument that `instructions` has, once in a process for each owner."""
    for name in given:
        if name in instructions and (owner, name) not in _warned:
            _warned.add((owner, name))
            LOGGER.warning("The argument %s of %s is deprecated: %s", name, owner, instructions[name])


def deprecated_arguments(owner: str, **instructions: str) -> Callable[[Function], Function]:
    """Logs a warning where an argument named in `instructions` is given, by name or position, and is not None."""

    def mark(function: Function) -> Function:
        signature = inspect.signature(function)

        @wraps(function)
        def wrapper(*arguments: object, **named: object) -> object:
            try:
                given = signature.bind_partial(*arguments, **named).arguments
            except TypeError:  # the call itself raises the error
                return function(*arguments, **named)
            warn_of_arguments(owner, (name for name, value in given.items() if value is not None), instructions)
            return function(*arguments, **named)

        return wrapper

    return mark
