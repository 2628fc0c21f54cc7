"""The file of a codelet's object code on disk, named by everything the codelet is compiled from."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from engine.machine_code import keys, sources

FOLDER = Path(__file__).parent.parent


def path_of(function: Callable[..., Any], name: str) -> Path:
    """The file of a codelet's object code; its folder depends on all of `engine/codelets`, as codelets call others."""
    digest = hashlib.sha256(_sources(inspect.getfile(function)))
    digest.update(repr(identity(function)).encode())
    return keys.folder("codelets", FOLDER) / f"{name}-{digest.hexdigest()[:32]}.o"


def path_of_library(name: str) -> Path:
    """The file of the object code of a library, which files of `engine/codelets` write."""
    return keys.folder("codelets", FOLDER) / f"{name}.o"


@cache
def _sources(file: str) -> bytes:
    """A hash of a file outside `engine/codelets` and of its imports; empty inside, which the folder's name covers."""
    path = Path(file)
    return b"" if path.is_relative_to(FOLDER) else sources.digest_at(path)


def identity(value: Any) -> Any:
    """The identity of a function and of the values in its closure, the same in every process."""
    function = getattr(value, "function", value)
    if inspect.isfunction(function):
        code = function.__code__
        cells = tuple(identity(cell.cell_contents) for cell in function.__closure__ or ())
        # Not the bytecode, in which releases of Python differ, unless a line has several functions.
        bytecode = code.co_code.hex() if function.__name__ == "<lambda>" else ""
        return function.__module__, function.__qualname__, code.co_firstlineno, bytecode, cells
    if isinstance(value, tuple | list):
        return tuple(identity(each) for each in value)
    return repr(value)
