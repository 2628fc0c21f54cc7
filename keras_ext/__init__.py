"""The package behind `keras.ipu` and `tf_keras.ipu`; its modules are loaded when first used."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType


def __getattr__(name: str) -> ModuleType:
    """Imports the submodule `name`, so that attribute access works without an import statement."""
    if not name.startswith("_") and find_spec(f"{__name__}.{name}") is not None:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
