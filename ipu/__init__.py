"""The public names of `tensorflow.python.ipu`, a module for each documented module, loaded when used."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import Any

import _ipu_hook

# Covers the starts in which ipu_hook.pth did not run: python -S, zip applications, PYTHONPATH.
_ipu_hook.install()


PROFILING = ("ProfileReport", "profile")
"""Names of `ipu.profiling` that stand here, too."""


def __getattr__(name: str) -> Any:
    """Imports the submodule `name`, so that `ipu.config` works after `from tensorflow.python import ipu`."""
    if name in PROFILING:
        return getattr(import_module(f"{__name__}.profiling"), name)
    if not name.startswith("_") and find_spec(f"{__name__}.{name}") is not None:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The submodules, whether imported yet or not."""
    return sorted({*globals(), *PROFILING, *(module.name for module in iter_modules(__path__))})
