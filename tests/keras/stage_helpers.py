"""Functions that open PipelineStage scopes for models that do not: found by name, alias, closure and class."""

from __future__ import annotations

from typing import Any

from keras_ext.extensions import PipelineStage
from keras_ext.extensions import PipelineStage as Renamed


def in_stage(number: int, layer: Any, inputs: Any) -> Any:
    """The layer's output, called in a stage."""
    with PipelineStage(number):
        return layer(inputs)


def in_renamed_stage(number: int, layer: Any, inputs: Any) -> Any:
    """Opens the stage under another name."""
    with Renamed(number):
        return layer(inputs)


def indirectly(number: int, layer: Any, inputs: Any) -> Any:
    """Opens the stage through another function."""
    return in_renamed_stage(number, layer, inputs)


class Staged:
    """A scope of one's own."""

    def __init__(self, number: int) -> None:
        self.stage = PipelineStage(number)

    def __enter__(self) -> None:
        self.stage.__enter__()

    def __exit__(self, *exception: object) -> None:
        self.stage.__exit__(*exception)


SCOPES = {"stage": PipelineStage}
"""Scopes where reading code does not find them."""
