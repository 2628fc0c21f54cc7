"""Registration of the classes of `keras.ipu`, so that programs that use none read saved models with them."""

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
    """Registers the classes when Keras looks up the first of them; for a Keras with one function for all look-ups."""

    def registered(original: Original, name: Any, *arguments: Any, **named: Any) -> Any:
        if isinstance(name, str) and name.startswith("ipu>"):
            register(framework)
        return original(name, *arguments, **named)

    wrap(object_registration, "get_registered_object", registered)
