"""`PipelineStage`: the scope in which layers of one stage of a pipeline are created or called."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

from engine.integers import checked_integer
from ipu._internal.function_code import wraps
from ipu._internal.thread_values import ThreadValue
from ipu.ipu_strategy import IPUStrategyV1
from keras_ext.pipelining.errors import StageScopeError

_STAGE = "_ipu_pipeline_stage"
inside_layer_call: list[Callable[[], bool]] = []
"""Predicates, one for each framework: whether this thread is in the call of a layer. Its model then has the strategy.
"""


def is_inside_layer() -> bool:
    """Whether this thread is in the call of a layer."""
    return any(ask() for ask in inside_layer_call)


_stage: ThreadValue[int | None] = ThreadValue(None)
_refusal: ThreadValue[tuple[str, bool] | None] = ThreadValue(None)


class PipelineStage:
    """A scope within which layers, or calls of layers, are assigned to a stage of a pipeline.

    A layer created in the scope runs in the stage in all calls, except those in the scope of another stage.
    Keras with IPUs, sections 19.4.2 and 19.4.3.

    Args:
        stage: the number of the stage, from 0.

    Raises:
        ValueError: `stage` is no integer of at least 0.
        RuntimeError: the scope is entered outside an IPUStrategy's scope, or inside another PipelineStage.
    """

    def __init__(self, stage: int) -> None:
        self._stage = checked_integer("the stage of a PipelineStage", stage, 0)

    def __enter__(self) -> PipelineStage:
        inside_layer = is_inside_layer()
        if _refusal.value is not None and (inside_layer or not _refusal.value[1]):
            raise StageScopeError(f"{_refusal.value[0]} Received: PipelineStage({self._stage}) entered there.")
        if not isinstance(tf.distribute.get_strategy(), IPUStrategyV1) and not inside_layer:
            raise StageScopeError(
                f"Expected PipelineStage({self._stage}) to be entered inside an IPUStrategy's scope. Received: no such "
                "scope. Put `with strategy.scope():` around the model's construction."
            )
        if _stage.value is not None:
            raise StageScopeError(
                f"Expected PipelineStage scopes that do not nest. Received: PipelineStage({self._stage}) inside "
                f"PipelineStage({_stage.value}). Leave the outer one first."
            )
        _stage.value = self._stage
        return self

    def __exit__(self, *exception: object) -> None:
        _stage.value = None


def refusing_scopes(message: str, *, in_layers: bool = False) -> AbstractContextManager[Any]:
    """Makes entering a PipelineStage raise StageScopeError, as it would be ignored; with `in_layers` only in calls of
    layers.
    """
    return _refusal.replaced_by((message, in_layers))


def allowing_scopes() -> AbstractContextManager[Any]:
    """Lets PipelineStages be entered, even inside `refusing_scopes`, while the context is open."""
    return _refusal.replaced_by(None)


def noting_stages(init: Callable[..., None]) -> Callable[..., None]:
    """Wraps the constructor of layers or nodes to note the stage in whose scope it runs."""

    @wraps(init)
    def init_in_stage(self: object, *arguments: object, **named: object) -> None:
        init(self, *arguments, **named)
        if _stage.value is not None:
            vars(self)[_STAGE] = _stage.value

    return init_in_stage


def noted_stage(made: object) -> int | None:
    """The stage noted for a layer or a node; None where there was no scope."""
    return vars(made).get(_STAGE)
