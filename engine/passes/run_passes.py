"""Runs passes, which are functions from a module to a better one that computes the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from engine.ir import Module
from engine.ir.verifier import verify as verify_module

Pass = Callable[[Module], Module]
Listener = Callable[[str, Module], None]


def run_passes(
    module: Module,
    passes: Iterable[Callable[..., Module]],
    *settings: object,
    verify: bool = False,
    listener: Listener | None = None,
) -> Module:
    """The module after all passes, each of which gets the module and `settings`.

    The listener gets each pass's name and its result. Raises InternalError, with `verify`, when a pass returns a module
    that the verifier refuses.
    """
    for each in passes:
        module = each(module, *settings)
        if verify:
            verify_module(module)
        if listener is not None:
            listener(each.__name__, module)
    return module
