"""Objects of a function that a SavedModel has to keep beside its graph: tables, variables, layers."""

from __future__ import annotations

import functools
from types import FunctionType
from typing import Any

from tensorflow.python.trackable.base import Trackable

from ipu._internal.function_code import closed_over, codes_of
from ipu._internal.types import Function

LIBRARIES = frozenset({"tensorflow", "keras", "tf_keras", "numpy"})


def host_objects(function: Function) -> list[Trackable]:
    """Trackables in the closure, globals, defaults and `__self__` of a function and of the functions it refers to."""
    found: dict[int, Trackable] = {}
    seen: set[int] = set()
    pending = [function]
    while pending:
        value = pending.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, Trackable):
            found[id(value)] = value
        pending += _referred(value)
    return list(found.values())


def _referred(value: object) -> list[Any]:
    if isinstance(value, list | tuple):
        return list(value)
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    if hasattr(value, "python_function"):  # a tf.function
        return [value.python_function]
    if hasattr(value, "__self__") and hasattr(value, "__func__"):
        return [value.__self__, value.__func__]
    if isinstance(value, FunctionType):
        return [] if value.__module__.partition(".")[0] in LIBRARIES else _referred_by(value)
    call = getattr(type(value), "__call__", None)  # noqa: B004
    return [call] if isinstance(call, FunctionType) else []


def _referred_by(function: FunctionType) -> list[Any]:
    names = function.__globals__
    used = [names[name] for code in codes_of(function.__code__) for name in code.co_names if name in names]
    return [*closed_over(function), *used, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
