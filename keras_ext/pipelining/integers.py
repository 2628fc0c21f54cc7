"""Stages given as a list of integers, one for each layer (Keras API, `set_pipeline_stage_assignment`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.errors import ConfigurationError
from engine.integers import is_integer
from keras_ext.pipelining.calls import Calls
from keras_ext.pipelining.stage_trees import StageTree, completed
from keras_ext.types import KerasModel


def are_integers(received: Sequence[Any]) -> bool:
    """Whether a list is not empty and all its elements are integers."""
    return bool(received) and all(is_integer(each) for each in received)


def stages_of_integers(model: KerasModel, calls: Calls, received: Sequence[Any]) -> tuple[StageTree, ...]:
    """The stage of each call of a sequential model, or of a subclass of `Model`.

    For a subclass the list has an integer for each call, or for each layer in the order of first calls. In the latter
    case all calls of a layer are in its stage, and an operation that is no layer is in the latest stage of those whose
    outputs it takes. Raises ConfigurationError for a list of another length.
    """
    stages = [int(stage) for stage in received]
    if len(stages) == len(calls):
        return tuple(stages)
    own = {id(layer) for layer in model.layers}
    layers = list(dict.fromkeys(id(call.layer) for call in calls if id(call.layer) in own))
    if calls.kind == "sequential" or len(stages) != len(layers):
        also = f", or for each invocation of a layer, {len(calls)}" if calls.kind == "subclass" else ""
        raise ConfigurationError(
            f"Expected pipeline_stage_assignment to have an element for each layer of model {model.name!r}, "
            f"{len(layers)} in all{also}. Received: {len(stages)}. get_pipeline_stage_assignment() lists them."
        )
    of_layer = dict(zip(layers, stages, strict=True))
    known = {id(call.node): of_layer[id(call.layer)] for call in calls if id(call.layer) in of_layer}
    found = completed(calls.of, known)
    return tuple(found[id(call.node)] for call in calls)
