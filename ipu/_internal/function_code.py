"""Nested code and closures of Python functions."""

from __future__ import annotations

from collections.abc import Iterator
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
