"""Checks of the arguments that a Python function takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any


def accepts(function: Callable[..., Any], positional: int, named: Sequence[str]) -> bool:
    """Whether it takes `positional` positional arguments and the names; True for a callable without a signature."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*[None] * positional, **dict.fromkeys(named))
    except TypeError:
        return False
    return True


def requirement(function: Callable[..., Any]) -> str:
    """The number of positional arguments that it takes, in words."""
    parameters = inspect.signature(function).parameters.values()
    by_position = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    least = sum(p.default is p.empty for p in by_position)
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return f"at least {least} arguments"
    count = f"exactly {least}" if least == len(by_position) else f"{least} to {len(by_position)}"
    return f"{count} arguments"
