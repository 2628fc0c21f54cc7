"""Variables of the programs that a thread executes: a function of the host that they call may read them alone."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

from engine.errors import HostFunctionError
from ipu._internal.thread_values import ThreadValue

_executing: ThreadValue[frozenset[int]] = ThreadValue(frozenset())
"""The ids of the variables that hold the locks."""


def executing(variables: Iterable[Any]) -> AbstractContextManager[Any]:
    """Within, this thread executes a program with these variables, which calls the host."""
    return _executing.replaced_by(_executing.value.union(id(each.lock_holder) for each in variables))


def check_assignable(variable: Any) -> None:
    """Raises HostFunctionError in a function that the variable's program calls: the assignment would be lost."""
    if _executing.value and id(variable.lock_holder) in _executing.value:
        raise HostFunctionError(
            f"Expected host functions to leave the variables of the program that calls them alone. Received: an "
            f"assignment to {variable.name!r}. Return the value and assign it in the program, or assign it afterwards."
        )
