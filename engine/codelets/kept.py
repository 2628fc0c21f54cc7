"""Where a codelet's machine code is kept on disk: under what it was made of."""

from __future__ import annotations

import hashlib
import inspect
import platform
from collections.abc import Callable
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from engine import cache_directory as disk
from engine import sources
from engine.codelets.processor import target


def cache_directory() -> Path:
    """The folder of compiled codelets; its name depends on the sources, the compiler and the processor."""
    return disk.cache_directory(f"codelets-{fingerprint()}")


@cache
def fingerprint() -> str:
    """A codelet calls functions of other files, so a change in any of them must change the folder."""
    digest = hashlib.sha256(sources.digest(Path(__file__).parent))
    name, features = target()
    versions = (metadata.version("numba"), metadata.version("llvmlite"), platform.python_version(), platform.machine())
    digest.update(repr((versions, name, sorted(features))).encode())
    return digest.hexdigest()[:16]


def path_of(function: Callable[..., Any], name: str) -> Path:
    """The file of a codelet's object code."""
    digest = hashlib.sha256(_sources(inspect.getfile(function)))
    digest.update(repr(identity(function)).encode())
    return cache_directory() / f"{name}-{digest.hexdigest()[:32]}.o"


@cache
def _sources(file: str) -> bytes:
    """A hash of a file outside the folder of codelets and of its imports; the cache's folder is named by all others."""
    path = Path(file)
    return b"" if path.is_relative_to(Path(__file__).parent) else sources.digest(path)


def identity(value: Any) -> Any:
    """What a function and the values it closes over are, the same in every process."""
    function = getattr(value, "function", value)
    if inspect.isfunction(function):
        code = function.__code__
        cells = tuple(identity(cell.cell_contents) for cell in function.__closure__ or ())
        return function.__module__, function.__qualname__, code.co_firstlineno, code.co_code.hex(), cells
    if isinstance(value, tuple | list):
        return tuple(identity(each) for each in value)
    return repr(value)
