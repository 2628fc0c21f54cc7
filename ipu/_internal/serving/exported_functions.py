"""Functions with a compiled program between steps on the host: results of exports, and loaded signatures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction
from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function


def exported_function(function: object) -> Callable[..., Any] | None:
    """A function that runs the exported program in `function` on the engine and the steps around it on the host.

    The result of an export itself; for a signature of a SavedModel, a function built from its graph. None for all other
    functions.
    """
    if isinstance(function, Function):
        return function if getattr(function, "_ipu_exported", False) else None
    if not isinstance(function, ConcreteFunction):
        return None
    if not hasattr(function, "_ipu_exported"):
        # Late: imports the compiler, which only such a function needs.
        from ipu._internal.serving.loaded_signatures import running

        function._ipu_exported = running(function)
    return function._ipu_exported
