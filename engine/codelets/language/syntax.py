"""The syntax tree of a codelet's function, and the values of outer names that the function uses."""

from __future__ import annotations

import ast
import builtins
import inspect
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from engine.errors import InternalError


def definition(function: Callable[..., Any]) -> ast.FunctionDef:
    """The statement that defines a function. Raises InternalError without its source."""
    code = function.__code__
    try:
        return _definitions(inspect.getfile(function))[code.co_name, code.co_firstlineno]
    except (OSError, KeyError):
        raise InternalError(
            f"Expected a codelet whose source is in a file. Received: {code.co_name} of {code.co_filename}."
        ) from None


@cache
def _definitions(file: str) -> dict[tuple[str, int], ast.FunctionDef]:
    """The functions in a file, by name and first line, which is the line of the first decorator."""
    tree = ast.parse(Path(file).read_bytes())
    return {
        (node.name, min([node.lineno, *(each.lineno for each in node.decorator_list)])): node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
    }


def outer_names(function: Callable[..., Any]) -> dict[str, Any]:
    """Values of the closure, the globals and the built-in functions that a function names."""
    code = function.__code__
    cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
    found = {name: cell.cell_contents for name, cell in cells.items()}
    for name in code.co_names:
        if name in function.__globals__:
            found[name] = function.__globals__[name]
        elif hasattr(builtins, name):
            found.setdefault(name, getattr(builtins, name))
    return found
