"""`set_`, `get_` and `reset_pipeline_stage_assignment`: the methods for a program's stages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from engine.errors import ConfigurationError
from engine.integers import checked_integer
from keras_ext.extension import Extension
from keras_ext.pipelining.assigned import ASSIGNMENT, assign, assigned_stages, noted_assignment, reset
from keras_ext.pipelining.assignments import (
    FunctionalLayerPipelineStageAssignment,
    FunctionalNestedModelPipelineStageAssignment,
    ModelLayerPipelineStageAssignment,
    ModelNestedModelPipelineStageAssignment,
    SequentialLayerPipelineStageAssignment,
    SequentialNestedModelPipelineStageAssignment,
    StageAssignment,
)
from keras_ext.pipelining.calls import Calls, LayerCall, calls_of
from keras_ext.pipelining.graphs import Kind
from keras_ext.pipelining.integers import are_integers, stages_of_integers
from keras_ext.pipelining.stage_checks import check_stages
from keras_ext.pipelining.stage_trees import StageTree, joined, spread
from keras_ext.pipelining.summary import print_summary
from keras_ext.types import KerasModel

ASSIGNMENTS: dict[Kind, tuple[type, type]] = {
    "sequential": (SequentialLayerPipelineStageAssignment, SequentialNestedModelPipelineStageAssignment),
    "functional": (FunctionalLayerPipelineStageAssignment, FunctionalNestedModelPipelineStageAssignment),
    "subclass": (ModelLayerPipelineStageAssignment, ModelNestedModelPipelineStageAssignment),
}
"""The assignments of layers, and of nested models, by the kind of the model that calls them."""


class StageAssignments(Extension):
    """The methods about stages."""

    SAVED: ClassVar[dict[str, Any]] = {ASSIGNMENT: None}
    COMPUTED: ClassVar[dict[str, Callable[[Any], Any]]] = {ASSIGNMENT: noted_assignment}

    def get_pipeline_stage_assignment(self: KerasModel) -> list[Any]:
        """Lists the stage of each layer, or of each call of a layer, in the order of execution.

        The list has assignment objects of the model's kind; those of nested models have lists of their own. Changing
        the list has no effect.
        `pipeline_stage` is None where there is no stage. Input layers are left out.

        Raises:
            RuntimeError: the model is of a subclass of `Model` and has not been built.
        """
        return _assignments(calls_of(self), assigned_stages(self))

    def set_pipeline_stage_assignment(self: KerasModel, pipeline_stage_assignment: object) -> None:
        """Assigns all layers, or calls of layers, to stages; `fit`, `evaluate` and `predict` run as a pipeline then.

        Args:
            pipeline_stage_assignment: a list like that of `get_pipeline_stage_assignment()`; a nested model can be
                assigned like a layer. For a `Sequential` model it can be of integers, one for each layer; for a
                subclass of `Model` one for each element of that list, or for each layer, in the order in which they
                are called first. None removes the model's stages.

        Raises:
            ValueError: a list of another length or order, a layer without a stage, a stage before that of a layer
                whose output it takes.
        """
        if pipeline_stage_assignment is None:
            reset(self)
            return
        if not isinstance(pipeline_stage_assignment, list | tuple):
            raise ConfigurationError(
                f"Expected pipeline_stage_assignment to be a list. Received: {pipeline_stage_assignment!r}. Give one "
                "element for each that get_pipeline_stage_assignment() returns."
            )
        calls = calls_of(self)
        trees = _trees(self, calls, pipeline_stage_assignment)
        check_stages(calls, trees)
        assign(self, calls, trees)

    def reset_pipeline_stage_assignment(self: KerasModel) -> None:
        """Removes the model's stages."""
        reset(self)

    def print_pipeline_stage_assignment_summary(
        self: KerasModel, line_length: int | None = None, print_fn: Callable[[str], object] | None = None
    ) -> None:
        """Prints the stage of each layer as a table, and each stage's parameters and activations if all are known.

        Args:
            line_length: width of the table in characters.
            print_fn: called with each line, in place of `print`.
        """
        calls = calls_of(self)
        print_summary(self, calls, assigned_stages(self), line_length, print_fn)


def _assignments(calls: Calls, trees: Sequence[StageTree]) -> list[Any]:
    return [_assignment(calls.kind, call, tree) for call, tree in zip(calls, trees, strict=True)]


def _assignment(kind: Kind, call: LayerCall, tree: StageTree) -> Any:
    of_layer, of_nested = ASSIGNMENTS[kind]
    index = () if kind == "sequential" else (call.node_index,)
    if call.inner is None:
        assignment = of_layer(call.layer, *index, tree)
    else:
        assignment = of_nested(call.layer, *index, _assignments(call.inner, spread(call, tree)))
    if index:
        assignment._inbound = call.inbound
    return assignment


def _trees(model: KerasModel, calls: Calls, received: Sequence[Any]) -> tuple[StageTree, ...]:
    """The stages in a list of assignments or integers; raises ConfigurationError if it does not fit these calls."""
    if calls.kind != "functional" and are_integers(received):
        return stages_of_integers(model, calls, received)
    if len(received) != len(calls):
        what = "layer" if calls.kind == "sequential" else "invocation of a layer"
        raise ConfigurationError(
            f"Expected pipeline_stage_assignment to have an element for each {what} of model {model.name!r}, "
            f"{len(calls)} in all. Received: {len(received)}. Take the list of get_pipeline_stage_assignment()."
        )
    of_layer, of_nested = ASSIGNMENTS[calls.kind]
    wrong = [element for element in received if type(element) not in (of_layer, of_nested)]
    if wrong:
        also = "" if calls.kind == "functional" else ", or all to be integers"
        raise ConfigurationError(
            f"Expected all elements of pipeline_stage_assignment to be instances of {of_layer.__name__}{also}. "
            f"Received: {wrong[0]!r} of type {type(wrong[0]).__name__}."
        )
    return tuple(
        _tree(position, call, given) for position, (call, given) in enumerate(zip(calls, received, strict=True))
    )


def _tree(position: int, call: LayerCall, given: StageAssignment) -> StageTree:
    index = getattr(given, "node_index", 0)
    if given.layer is not call.layer or index != call.node_index:
        raise ConfigurationError(
            f"Expected the assignments in the order of get_pipeline_stage_assignment(): at {position} call "
            f"{call.node_index} of layer {call.layer.name!r}. Received: call {index} of "
            f"{getattr(given.layer, 'name', None)!r}."
        )
    inner = getattr(given, "pipeline_stage_assignments", None)
    if inner is None:
        stage = given.pipeline_stage
        return None if stage is None else checked_integer(f"the pipeline stage of layer {call.layer.name!r}", stage, 0)
    if call.inner is None:
        raise ConfigurationError(
            f"Expected one stage for all of {call.layer.name!r}, which has no calls in stages of their own. Received: "
            f"{given!r}. Assign it like a layer."
        )
    return joined(_trees(call.layer, call.inner, inner))
