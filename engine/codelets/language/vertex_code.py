"""The code of a user's vertex, written by Numba's frontend, or by an earlier process on this machine."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from types import BuiltinFunctionType, CodeType, ModuleType
from typing import Any

import numpy as np

from engine.cache_directory import load, store
from engine.codelets.language.build import FOLDER
from engine.codelets.language.vertex import VertexArgument, encoded_code
from engine.machine_code import keys

CONSTANT_MODULES = ("numpy", "math")
PLAIN = (int, float, complex, str, bytes, type(None), np.generic, np.dtype, np.ufunc, type, BuiltinFunctionType)


@lru_cache
def code_of(function: Callable[..., None], arguments: tuple[VertexArgument, ...], reassociate: bool, title: str) -> str:
    """The code of a vertex, in the form of `engine.ir.vertices`. Raises VertexError as `bitcode_of` does."""
    identity = _identity(function, set())
    path: Path | None = None
    if identity is not None:
        digest = hashlib.sha256(repr((identity, arguments, reassociate)).encode()).hexdigest()[:32]
        path = keys.folder("codelets", FOLDER) / f"{function.__name__}-{digest}.bc"
        kept = load(path)
        if kept is not None:
            return encoded_code(kept)
    from engine.codelets.language.vertex_frontend import bitcode_of  # loads Numba, which takes long

    bitcode = bitcode_of(function, arguments, reassociate, title)
    if path is not None:
        store(path, bitcode)
    return encoded_code(bitcode)


def _identity(value: Any, seen: set[int]) -> Any:
    """Everything in a function and its values on which machine code depends; None where that is not known."""
    value = getattr(value, "py_func", value)
    if inspect.isfunction(value):
        if id(value) in seen:
            return "recursive"
        seen.add(id(value))
        code = value.__code__
        used = [value.__globals__[name] for name in sorted(_names(code)) if name in value.__globals__]
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        return _all([_code(code), *(_identity(each, seen) for each in (*used, *cells))])
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, ModuleType):
        return value.__name__ if value.__name__ in CONSTANT_MODULES else None
    if isinstance(value, tuple):
        return _all([_identity(each, seen) for each in value])
    return f"{type(value).__name__} {value!r}" if isinstance(value, PLAIN) else None


def _all(parts: list[Any]) -> Any:
    return None if any(part is None for part in parts) else tuple(parts)


def _names(code: CodeType) -> set[str]:
    return set(code.co_names).union(*(_names(each) for each in code.co_consts if isinstance(each, CodeType)))


def _code(code: CodeType) -> Any:
    constants = [_code(each) if isinstance(each, CodeType) else repr(each) for each in code.co_consts]
    return code.co_code.hex(), constants, code.co_names, code.co_varnames, code.co_freevars, code.co_argcount
