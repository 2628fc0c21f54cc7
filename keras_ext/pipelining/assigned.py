"""The stages in force for a model: those that were set, or else those of PipelineStage scopes."""

from __future__ import annotations

import logging
from typing import Any

from keras_ext.extension import option, options_of
from keras_ext.pipelining.calls import Calls, calls_of, model_graph
from keras_ext.pipelining.graphs import graphs_of, is_model
from keras_ext.pipelining.opening import is_subclass, opens_inside, opens_stages
from keras_ext.pipelining.stage import noted_stage
from keras_ext.pipelining.stage_checks import check_runnable, check_stages
from keras_ext.pipelining.stage_trees import StageTree, flat, from_saved, noted, to_saved
from keras_ext.pipelining.subclasses import subclass_graph
from keras_ext.types import KerasLayer, KerasModel

logger = logging.getLogger("ipu")
ASSIGNMENT = "pipeline_stage_assignment"
NOT_PIPELINED: list[Any] = []
"""The value of the option after a reset, which also overrides PipelineStage scopes."""
_ASSIGNED_LAYERS = "_ipu_assigned_layers"
_HAS_NOTED = "_ipu_has_noted_stages"


def is_pipelined(model: KerasModel) -> bool:
    """Whether a model, built if it is a subclass of `Model`, has an assignment to stages."""
    explicit = option(model, ASSIGNMENT)
    if explicit is not None:
        return bool(explicit) and _is_valid(model, explicit)
    return _has_noted(model)


def may_have_stages(model: KerasModel) -> bool:
    """Whether a subclass of `Model` that has not been traced has stages, or may have some once it is."""
    explicit = option(model, ASSIGNMENT)
    return opens_stages(model) if explicit is None else bool(explicit)


def is_without_stages(model: KerasModel) -> bool:
    """Whether the model was set to have no stages, with any scopes."""
    explicit = option(model, ASSIGNMENT)
    return explicit is not None and not explicit


def assigned_stages(model: KerasModel) -> tuple[StageTree, ...]:
    """The stage of each of the model's calls; None where it has none.

    Raises StageAssignmentError for a subclass of `Model` that has not been built.
    """
    explicit, calls = option(model, ASSIGNMENT), calls_of(model)
    if explicit and _is_valid(model, explicit):
        trees = from_saved(calls, explicit)
        assert trees is not None
        return trees
    return noted(calls) if explicit is None else (None,) * len(calls)


def checked_stages(model: KerasModel) -> tuple[StageTree, ...]:
    """The stages of a model about to run. Raises ConfigurationError if they do not fit the layers, or cannot run."""
    trees = assigned_stages(model)
    check_stages(calls_of(model), trees)
    check_runnable(model, trees)
    return trees


def noted_assignment(model: KerasModel) -> list[Any] | None:
    """The stages of PipelineStage scopes, in the form in which they are saved; None for a model without any."""
    if option(model, ASSIGNMENT) is not None or not is_pipelined(model):
        return None
    trees = assigned_stages(model)
    return None if None in flat(trees) else to_saved(calls_of(model), trees)


def assign(model: KerasModel, calls: Calls, trees: tuple[StageTree, ...]) -> None:
    """Puts checked stages in force."""
    vars(model)[_ASSIGNED_LAYERS] = _names(model)
    options_of(model)[ASSIGNMENT] = to_saved(calls, trees)


def reset(model: KerasModel) -> None:
    """Removes the model's stages."""
    options_of(model)[ASSIGNMENT] = NOT_PIPELINED


def _has_noted(model: KerasModel) -> bool:
    """Whether there are PipelineStage scopes. Called often: the result for a graph, which never changes, is cached."""
    kind = graphs_of(model).kind(model)
    if kind == "sequential":
        return any(noted_stage(layer) is not None or _has_noted_inside(layer) for layer in model.layers)
    if kind == "subclass" and subclass_graph(model) is None:
        return False
    graph = model_graph(model)
    if _HAS_NOTED not in vars(graph):
        vars(graph)[_HAS_NOTED] = any(stage is not None for stage in flat(noted(calls_of(model))))
    return bool(vars(graph)[_HAS_NOTED])


def _has_noted_inside(layer: KerasLayer) -> bool:
    return opens_inside(layer) or (is_model(layer) and not is_subclass(layer) and _has_noted(layer))


def _is_valid(model: KerasModel, explicit: list[Any]) -> bool:
    """Whether an assignment still fits; one that does not is dropped, with a log message."""
    if graphs_of(model).kind(model) == "subclass" and subclass_graph(model) is None:
        return True
    fits = vars(model).get(_ASSIGNED_LAYERS, names := _names(model)) == names
    if not fits or from_saved(calls_of(model), explicit) is None:
        reset(model)
        logger.info(
            "The layers of model %r have changed: its pipeline stage assignment is dropped. Set it again to run the "
            "model as a pipeline.",
            model.name,
        )
        return False
    return True


def _names(model: KerasModel) -> list[str]:
    """The names of a sequential model's layers, which programs can change."""
    return [layer.name for layer in model.layers] if graphs_of(model).kind(model) == "sequential" else []
