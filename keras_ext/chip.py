"""What a real chip would do with a model that has run here: memory per tile, cycles, does it fit."""

from __future__ import annotations

from typing import Any

from engine.errors import ConfigurationError
from engine.profile import Account, account, summary
from engine.target import Target, target
from ipu._device import current_system, on_ipu_model
from keras_ext.training import Mode, StepFunction


def chip_account(model: Any, mode: Mode = "train") -> Account:
    """The account of the program that the last `fit` ("train"), `evaluate` ("test") or `predict` ran.

    Raises ConfigurationError when the model has not run in this mode inside an IPUStrategy.
    """
    function = getattr(model, f"{mode}_function", None)
    program = function.latest_program() if isinstance(function, StepFunction) else None
    if program is None:
        method = {"train": "fit", "test": "evaluate", "predict": "predict"}[mode]
        raise ConfigurationError(
            f"Expected a model that has run {method}() inside an IPUStrategy. Received: {model.name!r}, which has "
            f"not. Call {method}() on it first."
        )
    return account(program.engine_program, configured_target())


def chip_summary(model: Any, mode: Mode = "train") -> str:
    """The account as a table of about twenty lines, 88 columns wide."""
    return summary(chip_account(model, mode))


def configured_target() -> Target:
    """The chip of the present configuration: a Mk2 unless an IPU model of another version is configured."""
    settings = current_system().config.ipu_model
    if not on_ipu_model():
        return target("ipu2")
    return target(settings.version, settings.tiles_per_ipu or None)
