"""Modules that `python -m ipu.run --tf1` makes in place of those that today's TensorFlow has no longer."""

from __future__ import annotations

from types import ModuleType
from typing import Any


class Namespace(ModuleType):
    """A module with these names, and with all names of another object."""

    def __init__(self, name: str, others: Any = None, **names: Any) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        vars(self).update(names)
        self._others = others

    def __getattr__(self, name: str) -> Any:
        if self._others is not None and not name.startswith("__"):
            return getattr(self._others, name)
        raise AttributeError(
            f"Expected a name of {self.__name__} that python -m ipu.run --tf1 supplies. Received: {name}."
        )
