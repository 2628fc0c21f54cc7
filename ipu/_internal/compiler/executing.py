"""Checks of variables that a program that calls the host, and the functions that it calls, must not both use."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

from engine.errors import ConfigurationError, HostFunctionError
from engine.host_functions import HostFunction
from ipu._internal.thread_values import ThreadValue

_executing: ThreadValue[frozenset[int]] = ThreadValue(frozenset())
"""The ids of the variables that hold the locks."""


def executing(variables: Iterable[Any]) -> AbstractContextManager[Any]:
    """Marks this thread as executing a program with these variables, which calls the host, while the context is
    open.
    """
    return _executing.replaced_by(_executing.value.union(id(each.lock_holder) for each in variables))


def check_assignable(variable: Any) -> None:
    """Raises HostFunctionError in a function that the variable's program calls: the assignment would be lost."""
    if _executing.value and id(variable.lock_holder) in _executing.value:
        raise lost_assignment(variable)


def lost_assignment(variable: Any) -> HostFunctionError:
    """The error of a program that calls the host, if one of its variables was assigned meanwhile."""
    return HostFunctionError(
        f"Expected host functions to leave the variables of the program that calls them alone. Received: an "
        f"assignment to {variable.name!r}. Return the value and assign it in the program, or assign it afterwards."
    )


def check_owner(function: HostFunction, variables: Iterable[Any]) -> None:
    """Raises ConfigurationError if a program has the variable that `function`, which it calls, uses in place."""
    owner = function.variable
    if owner is not None and any(_handle(each.lock_holder) is _handle(owner) for each in variables):
        raise ConfigurationError(
            f"Expected a program that looks up rows of host embedding {function.name!r} to leave its variable alone. "
            f"Received: a program that reads or assigns the variable, too, in a copy on the device, which would miss "
            f"the updates of rows, or undo them. Read rows by lookup, let a program without look-ups use the "
            f"variable, or keep it on the device: embedding_ops.embedding_lookup."
        )


def _handle(variable: Any) -> Any:
    """The handle, without a read of the variable."""
    names = ("_raw_handle", "_handle", "handle")
    return next((vars(variable)[name] for name in names if name in vars(variable)), variable)
