"""Refusal of models whose class makes its train, test or predict function itself."""

from __future__ import annotations

from engine.errors import UnsupportedOperation
from keras_ext.origins import KERAS, packages_of
from keras_ext.types import KerasModel

_MADE = "_ipu_functions_made"


def note_made(model: KerasModel, attribute: str) -> None:
    """Notes that the engine's function has been made for a model's attribute."""
    vars(model).setdefault(_MADE, set()).add(attribute)


def refuse_own_function(model: KerasModel, mode: str) -> None:
    """Raises UnsupportedOperation for a class whose `make_*_function` does not call that of Keras.

    Its function takes one batch of a tf.data iterator. From an iterator of the engine, a `tf.function` would take a
    batch when it is traced, and use it in all steps.
    """
    name = f"make_{mode}_function"
    owner = next(kind for kind in type(model).__mro__ if name in vars(kind))
    compiled = getattr(model, "compiled", False) or getattr(model, "_is_compiled", False)
    if packages_of(owner) <= KERAS or not (compiled or mode == "predict"):
        return
    getattr(model, name)()
    if f"{mode}_function" not in vars(model).get(_MADE, ()):
        raise UnsupportedOperation(
            f"Expected a function that super().{name}() makes. Received: that of {owner.__name__}.{name}, which does "
            f"not call it. Override {mode}_step instead."
        )
