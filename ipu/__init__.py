"""The public names of `tensorflow.python.ipu`, a module for each documented module, loaded when used."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from types import ModuleType

import _ipu_hook

# Covers the starts in which ipu_hook.pth did not run: python -S, zip applications, PYTHONPATH.
_ipu_hook.install()


def __getattr__(name: str) -> ModuleType:
    """Imports the submodule `name`, so that `ipu.config` works after `from tensorflow.python import ipu`."""
    if not name.startswith("_") and find_spec(f"{__name__}.{name}") is not None:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The submodules, whether imported yet or not."""
    return sorted({*globals(), *(module.name for module in iter_modules(__path__))})
