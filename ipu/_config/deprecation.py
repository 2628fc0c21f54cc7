"""Marks functions that new programs should not call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeVar

from ipu._config.metadata import LOGGER

Function = TypeVar("Function", bound=Callable)


def deprecated(instructions: str) -> Callable[[Function], Function]:
    """Logs a warning at a function's first call, and says "(deprecated)" in its docstring."""

    def mark(function: Function) -> Function:
        warned = False

        @functools.wraps(function)
        def wrapper(*arguments: object, **named: object) -> object:
            nonlocal warned
            if not warned:
                LOGGER.warning("%s is deprecated: %s", function.__name__, instructions)
                warned = True
            return function(*arguments, **named)

        summary, newline, rest = (function.__doc__ or "").partition("\n")
        wrapper.__doc__ = f"{summary} (deprecated){newline}{rest}"
        return wrapper  # type: ignore[return-value]

    return mark
