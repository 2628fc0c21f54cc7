"""Registration of the classes of `keras.ipu`, so that saved models with them are read by programs that use none."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

from keras_ext.wrapping import Original, wrap


def register(framework: str) -> None:
    """Imports, and thereby registers, the layers, losses and optimizers of a Keras, given its package's name."""
    for module in ("layers", "losses", "optimizers"):
        import_module(f"{framework}.ipu.{module}")


def register_on_demand(object_registration: ModuleType, framework: str) -> None:
    """Registers them when Keras looks up the first; for a Keras that has one function for all look-ups."""

    def registered(original: Original, name: Any, *arguments: Any, **named: Any) -> Any:
        if isinstance(name, str) and name.startswith("ipu>"):
            register(framework)
        return original(name, *arguments, **named)

    wrap(object_registration, "get_registered_object", registered)
