"""Scopes by which op_names distinguish operations."""

from __future__ import annotations

from engine.ir import Module
from engine.ir.op_names import WHOLE, ambiguous_scopes, outermost_scope


def keep_distinct_scopes(imported: Module) -> None:
    """Puts operations that differ in their outermost scope alone into a scope that makes reports print the whole scope.

    Reports leave out the outermost scope, which is the name of a Keras model; in functions of one's own it may be all
    that tells two operations apart, as in a/dense and b/dense. `imported` is a module that no pass has seen.
    """
    instructions = [each for computation in imported.computations() for each in computation.instructions]
    scopes = ambiguous_scopes({each.op_name for each in instructions})
    for each in instructions if scopes else ():
        if outermost_scope(each.op_name) in scopes:
            each.op_name = f"{WHOLE}/{each.op_name}"
