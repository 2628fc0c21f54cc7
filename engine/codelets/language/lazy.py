"""Numba's modules, loaded on first use of an attribute: code from the disk cache runs without Numba."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any


class LazyModule(ModuleType):
    """Stands for the module of its name."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)


if TYPE_CHECKING:
    from numba.core import cgutils, errors, types
else:
    types, errors, cgutils = (LazyModule(f"numba.core.{name}") for name in ("types", "errors", "cgutils"))

__all__ = ["cgutils", "errors", "types"]
