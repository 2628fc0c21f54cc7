"""`__getattr__` and `__dir__` of public modules: documented names are listed, missing ones name a replacement."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from engine.garbage import collector_paused

HERE = frozenset({"_ipu_hook", "ipu", "ipu._internal.names.namespace"})
"""Modules whose frames are between a user's statement and `attribute`."""


def public_names(
    module: str, names: Iterable[str], homes: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` for the module of that name.

    `names` are the documented ones. Those in `homes`, which maps them to their modules, are imported when used, and so
    are submodules.
    """
    listed = sorted(names)

    def __getattr__(name: str) -> Any:
        return attribute(module, listed, homes or {}, name)

    def __dir__() -> list[str]:
        return list(listed)

    return __getattr__, __dir__


def attribute(module: str, names: Iterable[str], homes: Mapping[str, str], name: str) -> Any:
    """Result of a module's `__getattr__` for `name`; only that may call it.

    Raises MissingName, an AttributeError, or in `from module import name` MissingImport, an ImportError.
    """
    if name in homes:
        return getattr(_imported(homes[name]), name)
    if name.startswith("_") and not name.isupper():  # a probe; old programs read _ALL_DEVICES
        raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name)
    if hasattr(sys.modules[module], "__path__") and find_spec(f"{module}.{name}") is not None:
        return _imported(f"{module}.{name}")
    from ipu._internal.names.missing import missing_name  # on demand

    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__") in HERE:
        frame = frame.f_back
    raise missing_name(module, names, name, frame)


def _imported(name: str) -> ModuleType:
    """The module of that name, and the many that it imports, without a scan of all of TensorFlow's objects."""
    with collector_paused():
        return import_module(name)
