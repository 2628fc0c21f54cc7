"""`set_`, `get_` and `reset_pipeline_stage_assignment`: which stage each layer of a model is in."""

from __future__ import annotations

import logging
from collections.abc import Callable
from numbers import Integral
from typing import Any, ClassVar

from engine.errors import ConfigurationError
from keras_ext.extension import Extension, option, options_of
from keras_ext.pipelining.assignments import (
    FunctionalLayerPipelineStageAssignment,
    ModelLayerPipelineStageAssignment,
    SequentialLayerPipelineStageAssignment,
)
from keras_ext.pipelining.errors import StageAssignmentError
from keras_ext.pipelining.graphs import Invocation, graphs_of, invocations
from keras_ext.pipelining.stage import PipelineStage, checked_stage, mentions_stages, noted_stage
from keras_ext.pipelining.subclasses import subclass_graph
from keras_ext.pipelining.summary import print_summary

logger = logging.getLogger("ipu")
ASSIGNMENT = "pipeline_stage_assignment"
NOT_PIPELINED: list[Any] = []
"""The value of the option after a reset, which also outweighs PipelineStage scopes."""
_ASSIGNED_LAYERS = "_ipu_assigned_layers"


def noted_assignment(model: Any) -> list[Any] | None:
    """What PipelineStage scopes say, in the form in which it is saved; None for a model without."""
    if option(model, ASSIGNMENT) is not None or not is_pipelined(model):
        return None
    stages = [stage for stage in assigned_stages(model) if stage is not None]
    if len(stages) < len(assigned_stages(model)):
        return None
    return stages if graphs_of(model).kind(model) == "sequential" else _triples(model_invocations(model), stages)


class StageAssignments(Extension):
    """The methods about stages."""

    SAVED: ClassVar[dict[str, Any]] = {ASSIGNMENT: None}
    COMPUTED: ClassVar[dict[str, Callable[[Any], Any]]] = {ASSIGNMENT: noted_assignment}

    def get_pipeline_stage_assignment(self) -> list[Any]:
        """The stage of each layer, or of each call of a layer, in the order of execution; changing it changes nothing.

        A list of the assignment objects of the model's kind. `pipeline_stage` is None where there is no stage. Input
        layers are left out. Raises RuntimeError for a subclass of `Model` that has not been built.
        """
        stages = assigned_stages(self)
        if graphs_of(self).kind(self) == "sequential":
            layers = self.layers  # type: ignore[attr-defined]
            return [
                SequentialLayerPipelineStageAssignment(layer, stage)
                for layer, stage in zip(layers, stages, strict=True)
            ]
        return [_assignment(self, i, stage) for i, stage in zip(model_invocations(self), stages, strict=True)]

    def set_pipeline_stage_assignment(self, pipeline_stage_assignment: Any) -> None:
        """Assigns all layers, or calls of layers, to stages; `fit`, `evaluate` and `predict` run as a pipeline then.

        A list like that of `get_pipeline_stage_assignment()`; for a `Sequential` model it can be of integers. None
        makes the model one without stages. Raises ValueError for anything else: a list of another length or order,
        a layer without a stage, a stage before that of a layer whose output is taken.
        """
        if pipeline_stage_assignment is None:
            options_of(self)[ASSIGNMENT] = NOT_PIPELINED
            return
        if not isinstance(pipeline_stage_assignment, list | tuple):
            raise ConfigurationError(
                f"Expected pipeline_stage_assignment to be a list. Received: {pipeline_stage_assignment!r}. Give one "
                "element for each that get_pipeline_stage_assignment() returns."
            )
        if graphs_of(self).kind(self) == "sequential":
            stages = _checked_sequential(self, list(pipeline_stage_assignment))
            vars(self)[_ASSIGNED_LAYERS] = [layer.name for layer in self.layers]  # type: ignore[attr-defined]
            options_of(self)[ASSIGNMENT] = stages
        else:
            stages = _checked_functional(self, list(pipeline_stage_assignment))
            options_of(self)[ASSIGNMENT] = _triples(model_invocations(self), stages)

    def reset_pipeline_stage_assignment(self) -> None:
        """Makes the model one without stages."""
        options_of(self)[ASSIGNMENT] = NOT_PIPELINED

    def print_pipeline_stage_assignment_summary(self, line_length: int | None = None, print_fn: Any = None) -> None:
        """Prints the stage of each layer as a table, and what each stage holds if all is known.

        `line_length` is the width of the table, `print_fn` is called with each line in place of `print`.
        """
        is_sequential = graphs_of(self).kind(self) == "sequential"
        assignments = self.get_pipeline_stage_assignment()
        graph = model_graph(self)
        nodes = [] if graph is None else [i.node for i in invocations(graphs_of(self), graph)]
        print_summary(self, assignments, nodes, is_sequential, line_length, print_fn)


def is_pipelined(model: Any) -> bool:
    """Whether a model, built if it is a subclass of `Model`, has an assignment to stages."""
    explicit = option(model, ASSIGNMENT)
    if explicit is not None:
        return bool(explicit) and _is_valid(model, explicit)
    if not PipelineStage.used or graphs_of(model).kind(model) == "subclass" and subclass_graph(model) is None:
        return False
    return any(stage is not None for stage in _noted(model))


def may_have_stages(model: Any) -> bool:
    """Whether a subclass of `Model` that has not been traced may turn out to have stages."""
    explicit = option(model, ASSIGNMENT)
    return mentions_stages(type(model)) if explicit is None else bool(explicit)


def assigned_stages(model: Any) -> list[int | None]:
    """The stage of each layer of a sequential model, of each invocation of others; None where it has none.

    Raises StageAssignmentError for a subclass of `Model` that has not been built.
    """
    explicit = option(model, ASSIGNMENT)
    if explicit and _is_valid(model, explicit):
        if graphs_of(model).kind(model) == "sequential":
            return list(explicit)
        by_call = {(layer, index): stage for layer, index, stage in explicit}
        return [by_call[key] for key in _keys(model_invocations(model))]
    noted = _noted(model)
    return noted if explicit is None else [None] * len(noted)


def checked_stages(model: Any) -> list[int]:
    """The stages of a model that is going to run. Raises ConfigurationErrors for layers and for numbers left out."""
    graphs, stages = graphs_of(model), assigned_stages(model)
    if graphs.kind(model) == "sequential":
        _check_steps(model.layers, stages)
    else:
        _check_order(model_invocations(model), stages)
    used = {stage for stage in stages if stage is not None}
    missing = sorted(set(range(max(used) + 1)) - used)
    if missing:
        raise StageAssignmentError(
            f"Expected all stages of a pipeline to have at least one layer. Received: none in stage {missing[0]} of "
            f"{max(used) + 1} of model {model.name!r}. Number the stages from 0 without gaps."
        )
    if graphs.kind(model) != "subclass" and graphs.overrides_call(model):
        raise StageAssignmentError(
            f"Expected a pipelined {graphs.kind(model)} model whose class does not override call. Received: "
            f"{type(model).__name__}. Derive it from Model alone, or put what call adds into a layer."
        )
    return [stage for stage in stages if stage is not None]


def model_graph(model: Any) -> Any:
    """The graph of a model; None for a sequential model before it is built.

    Raises StageAssignmentError for a subclass of `Model` that has not been built.
    """
    graphs = graphs_of(model)
    if graphs.kind(model) != "subclass":
        return graphs.graph(model)
    graph = subclass_graph(model)
    if graph is None:
        raise StageAssignmentError(
            f"Expected a model that has been built. Received: {type(model).__name__} {model.name!r}, whose layers are "
            "known only once its call has been traced. Call build() on it with the shapes of its inputs first."
        )
    return graph


def model_invocations(model: Any) -> list[Invocation]:
    """The calls of layers in a functional model, or in a subclass of `Model` that has been built."""
    return invocations(graphs_of(model), model_graph(model))


def called_layers(model: Any) -> list[Any]:
    """The layer of each assignment."""
    if graphs_of(model).kind(model) == "sequential":
        return list(model.layers)
    return [call.layer for call in model_invocations(model)]


def _noted(model: Any) -> list[int | None]:
    """What PipelineStage scopes say; a call outweighs the layer's construction."""
    graphs = graphs_of(model)
    if graphs.kind(model) == "sequential":
        return [noted_stage(layer) for layer in model.layers]
    stages = [(noted_stage(i.node), noted_stage(i.layer)) for i in model_invocations(model)]
    return [of_layer if of_call is None else of_call for of_call, of_layer in stages]


def _keys(calls: list[Invocation]) -> list[tuple[int, int]]:
    """For each call the number of its layer, as first met, and which of its calls it is: that can be saved."""
    numbers: dict[int, int] = {}
    return [(numbers.setdefault(id(call.layer), len(numbers)), call.node_index) for call in calls]


def _triples(calls: list[Invocation], stages: list[int]) -> list[list[int]]:
    return [[layer, index, stage] for (layer, index), stage in zip(_keys(calls), stages, strict=True)]


def _is_valid(model: Any, explicit: list[Any]) -> bool:
    """Whether an assignment still fits; one that does not is dropped, and that is said."""
    if graphs_of(model).kind(model) == "sequential":
        names = [layer.name for layer in model.layers]
        fits = len(names) == len(explicit) and vars(model).get(_ASSIGNED_LAYERS, names) == names
    elif graphs_of(model).kind(model) == "subclass" and subclass_graph(model) is None:
        return True
    else:
        fits = {(layer, index) for layer, index, _ in explicit} == set(_keys(model_invocations(model)))
    if not fits:
        options_of(model)[ASSIGNMENT] = NOT_PIPELINED
        logger.info(
            "The layers of model %r have changed: its pipeline stage assignment is dropped. Set it again to run the "
            "model as a pipeline.",
            model.name,
        )
    return fits


def _assignment(model: Any, call: Invocation, stage: int | None) -> Any:
    assignment = _kind_of_assignment(model)(call.layer, call.node_index, stage)
    assignment._inbound = call.inbound
    return assignment


def _kind_of_assignment(model: Any) -> type:
    return {
        "sequential": SequentialLayerPipelineStageAssignment,
        "functional": FunctionalLayerPipelineStageAssignment,
        "subclass": ModelLayerPipelineStageAssignment,
    }[graphs_of(model).kind(model)]


def _check_classes(model: Any, received: list[Any], expected: int, what: str) -> None:
    if len(received) != expected:
        raise ConfigurationError(
            f"Expected pipeline_stage_assignment to have an element for each {what} of model {model.name!r}, "
            f"{expected} in all. Received: {len(received)}. Take the list of get_pipeline_stage_assignment()."
        )
    kind = _kind_of_assignment(model)
    wrong = [element for element in received if type(element) is not kind]
    if wrong:
        also = ", or all to be integers" if kind is SequentialLayerPipelineStageAssignment else ""
        raise ConfigurationError(
            f"Expected all elements of pipeline_stage_assignment to be instances of {kind.__name__}{also}. Received: "
            f"{wrong[0]!r} of type {type(wrong[0]).__name__}."
        )


def _checked_sequential(model: Any, received: list[Any]) -> list[int]:
    layers = model.layers
    if not (received and all(isinstance(stage, Integral) and not isinstance(stage, bool) for stage in received)):
        _check_classes(model, received, len(layers), "layer")
        _check_layers(received, [(layer, 0) for layer in layers])
        received = [assignment.pipeline_stage for assignment in received]
    elif len(received) != len(layers):
        _check_classes(model, received, len(layers), "layer")
    _check_steps(layers, received)
    return [int(stage) for stage in received]


def _check_steps(layers: list[Any], stages: list[Any]) -> None:
    """A sequential model's stages begin with 0 and go on with the same or the next."""
    before = 0
    for layer, stage in zip(layers, stages, strict=True):
        number = _numbered(stage, layer, 0)
        is_first = layer is layers[0]
        if number not in ((0,) if is_first else (before, before + 1)):
            legal = "0, the first layer's" if is_first else f"{before} or {before + 1}, after {before}"
            raise ConfigurationError(
                f"Expected the stage of layer {layer.name!r} to be {legal}. Received: {number}. Stages of a "
                "sequential model begin with 0 and increase by at most one from layer to layer."
            )
        before = number


def _checked_functional(model: Any, received: list[Any]) -> list[int]:
    calls = model_invocations(model)
    _check_classes(model, received, len(calls), "invocation of a layer")
    _check_layers(received, [(call.layer, call.node_index) for call in calls])
    stages = [assignment.pipeline_stage for assignment in received]
    _check_order(calls, stages)
    return [int(stage) for stage in stages]


def _check_layers(received: list[Any], expected: list[tuple[Any, int]]) -> None:
    for place, (assignment, (layer, index)) in enumerate(zip(received, expected, strict=True)):
        its_index = getattr(assignment, "node_index", 0)
        if assignment.layer is not layer or its_index != index:
            raise ConfigurationError(
                f"Expected the assignments in the order of get_pipeline_stage_assignment(): at {place} call {index} of "
                f"layer {layer.name!r}. Received: call {its_index} of {getattr(assignment.layer, 'name', None)!r}."
            )


def _check_order(calls: list[Invocation], stages: list[Any]) -> None:
    for call, stage in zip(calls, stages, strict=True):
        number = _numbered(stage, call.layer, call.node_index)
        for producer in call.producers:
            if number < stages[producer]:
                raise ConfigurationError(
                    f"Expected a layer to be in the stage of those whose outputs it takes, or in a later one. "
                    f"Received: call {call.node_index} of layer {call.layer.name!r} in stage {number}, which takes the "
                    f"output of {calls[producer].layer.name!r} in stage {stages[producer]}. Nearest legal value: "
                    f"{stages[producer]}."
                )


def _numbered(stage: Any, layer: Any, index: int) -> int:
    if stage is None:
        raise ConfigurationError(
            f"Expected all layers to have a pipeline stage. Received: none for call {index} of layer {layer.name!r}. "
            f"Set its pipeline_stage, or call it inside a PipelineStage."
        )
    return checked_stage(stage, f"the pipeline stage of layer {layer.name!r}")
