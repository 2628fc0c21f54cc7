"""Selects the compiled program of a model for a report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from engine.errors import ConfigurationError
from ipu._internal.types import Nest

if TYPE_CHECKING:
    from ipu._internal.compiler.program import TracedProgram

METHODS = {"train": "fit", "test": "evaluate", "predict": "predict"}
"""The method of a Keras model that runs its program of each mode."""


@runtime_checkable
class ProgramOwner(Protocol):
    """Owner of a Keras model's programs: its train, test or predict function, if it runs on the engine."""

    def latest_program(self) -> TracedProgram | None:
        """The program compiled last; None before the first."""

    def program_for(self, x: Nest = None, y: Nest = None, batch_size: int | None = None) -> TracedProgram:
        """The program for batches of these shapes, compiled if there is none yet."""


def program_of_model(
    model: Any, mode: str, x: Nest = None, y: Nest = None, batch_size: int | None = None
) -> TracedProgram:
    """The program that the model's last `fit` ("train"), `evaluate` ("test") or `predict` ran.

    If the model has not run in this mode, or if shapes are given, this is the program for these shapes, not run. Raises
    ConfigurationError for another mode, for a model that was not created inside an IPUStrategy, and for one without
    known shapes.
    """
    if mode not in METHODS:
        raise ConfigurationError(f"Expected a mode of {', '.join(map(repr, METHODS))}. Received: {mode!r}.")
    owner = _owner(model, mode)
    if owner is None:
        raise ConfigurationError(
            f"Expected a model created inside an IPUStrategy's scope. Received: {model.name!r}, which was not. Create "
            "and compile it in `with strategy.scope():`."
        )
    given = any(each is not None for each in (x, y, batch_size))
    program = None if given else owner.latest_program()
    return owner.program_for(x, y, batch_size) if program is None else program


def is_model(subject: object) -> bool:
    """Whether this is a model of a Keras, which is not imported for the check."""
    return any(
        each.__name__ == "Model" and each.__module__.partition(".")[0] in ("keras", "tf_keras")
        for each in type(subject).__mro__
    )


def latest_mode(model: object) -> str:
    """The mode that a model has run in, "train" before "test" before "predict".

    If in none, "train" for a model that has been compiled.
    """
    for mode in METHODS:
        function = getattr(model, f"{mode}_function", None)
        if isinstance(function, ProgramOwner) and function.latest_program() is not None:
            return mode
    return "predict" if getattr(model, "optimizer", None) is None else "train"


def _owner(model: object, mode: str) -> ProgramOwner | None:
    """The model's function of a mode, created as Keras does; None for a model that Keras runs itself."""
    if not getattr(getattr(model, "distribute_strategy", None), "serves_keras", False):
        return None
    if getattr(model, f"{mode}_function", None) is None:
        getattr(model, f"make_{mode}_function")()
    owner = getattr(model, f"{mode}_function", None)
    return owner if isinstance(owner, ProgramOwner) else None
