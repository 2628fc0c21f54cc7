"""Codelets: Numba functions compiled on first use, kept in a disk cache, and called by address."""

from __future__ import annotations

import ctypes
import hashlib
import platform
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from engine import cache_directory as disk

OPTIONS: dict[str, Any] = {"error_model": "numpy", "boundscheck": False, "fastmath": {"contract"}}
CODELET_TYPE = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)

# One codelet must not compile twice.
_lock = threading.RLock()
_listeners: list[Callable[[str], None]] = []


class Codelet:
    """A function `void(int64 parameters, int64 lo, int64 hi, int64 scratch)` on the units lo <= unit < hi.

    Nothing is compiled before `address` is read. Calling the object calls the compiled code without the GIL.
    """

    def __init__(self, function: Callable[[int, int, int, int], None], name: str | None = None) -> None:
        self.name: str = name or function.__name__
        self.function = function

    @cached_property
    def _compiled(self) -> Any:
        with _lock:
            return _compile(self.function, self.name)

    @property
    def address(self) -> int:
        """The address of the compiled code, valid as long as the process; compiles at the first call."""
        return int(self._compiled.address)

    @cached_property
    def _callable(self) -> Callable[..., None]:
        return CODELET_TYPE(self.address)

    def __call__(self, parameters: int, lo: int, hi: int, scratch: int) -> None:
        self._callable(parameters, lo, hi, scratch)

    def __repr__(self) -> str:
        return f"Codelet({self.name})"


def codelet(function: Callable[[int, int, int, int], None]) -> Codelet:
    """Decorator: makes a Codelet of a function in the language that Numba compiles."""
    return Codelet(function)


def inner(function: Callable[..., Any]) -> Any:
    """Decorator of a function that codelets call; compiled into its callers."""
    import numba

    return numba.njit(**OPTIONS)(function)


@contextmanager
def building(listener: Callable[[str], None]) -> Iterator[None]:
    """While open, calls `listener(codelet name)` before compiling what the disk cache does not have."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def cache_directory() -> Path:
    """The folder of compiled codelets; its name depends on the sources, the compiler and the processor."""
    return disk.cache_directory(f"codelets-{_fingerprint()}")


@cache
def _fingerprint() -> str:
    """A codelet calls functions of other files, so a change in any of them must change the folder."""
    import llvmlite
    import numba

    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    name, features = target()
    versions = (numba.__version__, llvmlite.__version__, platform.python_version(), platform.machine())
    digest.update(repr((versions, name, sorted(features))).encode())
    return digest.hexdigest()[:16]


@cache
def target() -> tuple[str, frozenset[str]]:
    """The processor Numba compiles for: its LLVM name and its features (such as "avx512f" or "neon")."""
    import llvmlite.binding
    from numba import config

    name = config.CPU_NAME or llvmlite.binding.get_host_cpu_name()
    features = config.CPU_FEATURES
    if features is None:
        features = "" if config.CPU_NAME == "generic" else llvmlite.binding.get_host_cpu_features().flatten()
    return name, frozenset(feature[1:] for feature in features.split(",") if feature.startswith("+"))


def _compile(function: Callable[..., None], name: str) -> Any:
    """Compiles, or loads from the disk cache."""
    import numba
    from numba.core import event
    from numba.core.ccallback import CFunc

    from engine.codelets.kept import KeptCode

    signature = (numba.types.int64,) * 4, numba.types.void
    compiled = CFunc(function, signature, locals={}, options=dict(OPTIONS))
    compiled._cache = KeptCode(function, name, cache_directory())
    with event.install_listener("numba:run_pass", _announcer(name)):
        compiled.compile()
    return compiled


def _announcer(name: str) -> Any:
    """A listener that tells ours, once, that a compiler pass runs: the cache did not have the codelet."""
    from numba.core import event

    class Announcer(event.Listener):
        told = False

        def on_start(self, event: Any) -> None:
            if not self.told:
                self.told = True
                for listener in list(_listeners):
                    listener(name)

        def on_end(self, event: Any) -> None:
            """The end of a pass tells nothing new."""

    return Announcer()
