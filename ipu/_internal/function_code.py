"""Nested code, closures and wrappers of Python functions."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any


def codes_of(code: CodeType) -> Iterator[CodeType]:
    """A code object and those of the functions and classes defined in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_of(constant)


def closed_over(function: FunctionType) -> Iterator[Any]:
    """The values of the variables that a function closes over, as far as they have been assigned."""
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # of a name that has not been assigned yet
            continue


def wraps(original: Callable[..., Any], updated: tuple[str, ...] = functools.WRAPPER_UPDATES) -> Callable[..., Any]:
    """Decorates a wrapper of `original` with its name and documentation, as functools.wraps, and with its signature.

    inspect.getfullargspec, by which Keras tells classes apart, does not look for what a function wraps.
    """

    def decorated(wrapper: Callable[..., Any]) -> Callable[..., Any]:
        wrapper = functools.wraps(original, updated=updated)(wrapper)
        try:
            wrapper.__signature__ = inspect.signature(original)  # type: ignore[attr-defined]
        except (TypeError, ValueError):  # a function in C has none
            pass
        return wrapper

    return decorated
