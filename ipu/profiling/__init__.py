"""Reports on what a chip would do: `ipu.profile` and the callback `ipu.ProfileReport`, loaded when they are used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {"profile": "ipu.profiling.making", "ProfileReport": "ipu.profiling.callback"}
__all__ = ["ProfileReport", "profile"]


def __getattr__(name: str) -> Any:
    """Imports what makes reports, and the engine's compiler with it, when it is used."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names."""
    return sorted({*globals(), *__all__})
