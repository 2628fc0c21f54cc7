"""Installs the extensions into each Keras the program uses, and into none that it does not import."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType

from engine.garbage import collector_paused
from ipu._internal.releases import check_release

FRAMEWORKS = {"keras": "keras_ext.frameworks.keras3", "tf_keras": "keras_ext.frameworks.tf_keras"}


def install() -> None:
    """Extends the imported ones of FRAMEWORKS now and the others when they are imported; called for each IPUStrategy.

    Raises ConfigurationError when Keras 3 runs on another backend than TensorFlow, and for releases of TensorFlow and
    Keras outside of `RELEASES`.
    """
    if "tensorflow" in sys.modules:
        check_release(sys.modules["tensorflow"])
    missing = [name for name in FRAMEWORKS if name not in sys.modules]
    if missing and not any(isinstance(finder, InstallingFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, InstallingFinder())
    for name in FRAMEWORKS:
        if name not in missing:
            extend(name)


def extend(name: str) -> None:
    """Installs the extensions into the framework of that name, once."""
    check_release(sys.modules[name])
    with collector_paused():
        extension = import_module(FRAMEWORKS[name])
    extension.install()


class InstallingFinder:
    """Lets the other finders find a framework, and extends it once its package has been executed."""

    def __init__(self) -> None:
        self._asking: set[str] = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns the other finders' spec of a framework, whose loader then installs; None for every other name."""
        # The others may call back: some delegate a name to all other finders, too.
        if name not in FRAMEWORKS or name in self._asking:
            return None
        self._asking.add(name)
        try:
            finders = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not self)
            spec = next((spec for spec in finders if spec is not None), None)
        finally:
            self._asking.discard(name)
        if spec is not None and spec.loader is not None:
            _extend_after_execution(spec.loader)
        return spec


def _extend_after_execution(loader: Loader) -> None:
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        # Once: a module that is reloaded or inspected has its own loader again.
        loader.__dict__.pop("exec_module", None)
        execute(module)
        extend(module.__name__)

    loader.exec_module = exec_module  # type: ignore[method-assign]  # of this loader only
