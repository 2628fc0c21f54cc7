"""Wraps functions and methods of a Keras at class or module level."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ipu._internal.function_code import wraps

Original = Callable[..., Any]


def wrap(owner: object, name: str, function: Callable[..., Any]) -> None:
    """Replaces an attribute of a class or module: `function` is called with the original, then with the arguments."""
    original = getattr(owner, name)

    @wraps(original)
    def wrapped(*arguments: Any, **named: Any) -> Any:
        return function(original, *arguments, **named)

    setattr(owner, name, wrapped)
