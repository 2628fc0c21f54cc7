"""Keeps Numba's compiled functions on disk, in place of Numba's own cache.

Numba's cache trusts what it reads, needs to write where it reads, and fails when the disk is full.
"""

from __future__ import annotations

import hashlib
import inspect
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.runtime import rtsys
from numba.core.serialize import dumps

from engine.cache_directory import load, store


class KeptCode(NullCache):
    """The compiled code of one function, kept in a folder whose name stands for sources, compiler and processor."""

    def __init__(self, function: Callable[..., Any], name: str, folder: Path) -> None:
        self._function, self._name, self._folder = function, name, folder

    def _path(self, signature: Any) -> Path:
        digest = hashlib.sha256(Path(inspect.getfile(self._function)).read_bytes())
        digest.update(repr((signature, identity(self._function))).encode())
        return self._folder / f"{self._name}-{digest.hexdigest()[:32]}"

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Numba's CompileResult for a signature; None if it has to be compiled."""
        content = load(self._path(sig))
        if content is None:
            return None
        # LLVM must know Numba's runtime, which the code calls; all else that `refresh` loads is for compiling.
        rtsys.initialize(target_context)
        return CompileResult._rebuild(target_context, *pickle.loads(content))

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keeps a CompileResult, unless its code holds addresses of this process."""
        if not data.library.has_dynamic_globals and not any(not each.can_cache for each in data.lifted):
            store(self._path(sig), dumps(data._reduce()))


def identity(value: Any) -> Any:
    """What a function and the values it closes over are, the same in every process."""
    function = getattr(value, "py_func", getattr(value, "function", value))
    if inspect.isfunction(function):
        code = function.__code__
        cells = tuple(identity(cell.cell_contents) for cell in function.__closure__ or ())
        return function.__module__, function.__qualname__, code.co_firstlineno, code.co_code.hex(), cells
    if isinstance(value, tuple | list):
        return tuple(identity(each) for each in value)
    return repr(value)
