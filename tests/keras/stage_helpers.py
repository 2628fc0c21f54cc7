"""Functions that open PipelineStage scopes for models whose `call` does not: by name, alias, closure and class."""

from __future__ import annotations

from typing import Any

from keras_ext.extensions import PipelineStage
from keras_ext.extensions import PipelineStage as Renamed


def in_stage(number: int, layer: Any, inputs: Any) -> Any:
    """The output of a layer that is called in a stage."""
    with PipelineStage(number):
        return layer(inputs)


def in_renamed_stage(number: int, layer: Any, inputs: Any) -> Any:
    """Calls a layer in a stage that is opened under another name."""
    with Renamed(number):
        return layer(inputs)


def indirectly(number: int, layer: Any, inputs: Any) -> Any:
    """Calls a layer in a stage that another function opens."""
    return in_renamed_stage(number, layer, inputs)


class Staged:
    """A scope of the user's own that opens a stage."""

    def __init__(self, number: int) -> None:
        self.stage = PipelineStage(number)

    def __enter__(self) -> None:
        self.stage.__enter__()

    def __exit__(self, *exception: object) -> None:
        self.stage.__exit__(*exception)


SCOPES = {"stage": PipelineStage}
"""Scopes that reading code does not find."""
