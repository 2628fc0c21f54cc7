"""Wraps functions and methods of a Keras at class or module level."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ipu._internal.function_code import wraps

Original = Callable[..., Any]


def leave_out_of_tracebacks(excluded: tuple[str, ...]) -> tuple[str, ...]:
    """Adds this project's packages to the paths whose frames a Keras filters from the tracebacks of its methods."""
    root = Path(__file__).parent.parent
    return (*excluded, *(str(root / name) + os.sep for name in ("ipu", "keras_ext", "engine")))


def wrap(owner: object, name: str, function: Callable[..., Any]) -> None:
    """Replaces an attribute of a class or module: `function` is called with the original, then with the arguments."""
    original = getattr(owner, name)

    @wraps(original)
    def wrapped(*arguments: Any, **named: Any) -> Any:
        return function(original, *arguments, **named)

    setattr(owner, name, wrapped)
