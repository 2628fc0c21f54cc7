"""Checks of an assignment to stages: in the order of execution, without gaps, complete."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from engine.errors import ConfigurationError
from engine.integers import checked_integer
from keras_ext.pipelining.assignments import input_tensors
from keras_ext.pipelining.calls import Calls, LayerCall
from keras_ext.pipelining.errors import StageAssignmentError
from keras_ext.pipelining.graphs import graphs_of
from keras_ext.pipelining.stage_trees import StageTree, flat
from keras_ext.types import KerasLayer, KerasModel

Source = tuple[int, str] | None
"""The stage and the layer that a tensor comes from; None for an input of the whole model."""


def check_stages(calls: Calls, trees: Sequence[StageTree]) -> None:
    """Raises ConfigurationError for layers without a stage, or in a stage before that of a layer they take input from.

    Stages of a sequential model begin with 0 and stay or increase by one from layer to layer.
    """
    if calls.kind == "sequential":
        _check_steps(calls, trees, None)
    _check_order(calls, trees, [None] * len(calls.inputs))


def check_runnable(model: KerasModel, trees: Sequence[StageTree]) -> None:
    """Raises StageAssignmentError for a stage without layers, and for a sequential or functional model's own `call`."""
    used = {stage for stage in flat(trees) if stage is not None}
    missing = sorted(set(range(max(used) + 1)) - used)
    if missing:
        raise StageAssignmentError(
            f"All stages in a pipeline must have at least one layer. Expected one in each of stages 0 to {max(used)} "
            f"of model {model.name!r}. Received: none in stage {missing[0]}. Number the stages from 0 without gaps."
        )
    graphs = graphs_of(model)
    if graphs.kind(model) != "subclass" and graphs.overrides_call(model):
        raise StageAssignmentError(
            f"Expected a pipelined {graphs.kind(model)} model whose class does not override call. Received: "
            f"{type(model).__name__}. Derive it from Model alone, or put the operations of call into a layer."
        )


def _check_steps(calls: Calls, trees: Sequence[StageTree], before: int | None) -> int | None:
    """Checks a sequential model's calls after the stage `before` (None at its beginning); returns the last stage."""
    for call, tree in zip(calls, trees, strict=True):
        if isinstance(tree, tuple) and call.inner is not None and call.inner.kind == "sequential":
            before = _check_steps(call.inner, tree, before)
            continue
        stages = [_numbered(stage, call.layer, call.node_index) for stage in flat([tree])]
        number = min(stages)
        if number not in ((0,) if before is None else (before, before + 1)):
            legal = "0, the first layer's" if before is None else f"{before} or {before + 1}, after {before}"
            raise ConfigurationError(
                f"Expected the stage of layer {call.layer.name!r} to be {legal}. Received: {number}. Stages of a "
                "sequential model begin with 0 and increase by at most one from layer to layer."
            )
        before = max(stages)
    return before


def _check_order(calls: Calls, trees: Sequence[StageTree], sources: Sequence[Source]) -> list[Source]:
    """Checks the order of stages; returns the sources of the outputs, given those of the inputs."""
    if not calls.inputs:
        given = list(sources)
        for call, tree in zip(calls, trees, strict=True):
            given = _check_call(call, tree, given)
        return given
    # A nested model may be called with its inputs in another structure than it was built with.
    known = sources if len(sources) == len(calls.inputs) else [_latest(sources)] * len(calls.inputs)
    made = {id(tensor): source for tensor, source in zip(calls.inputs, known, strict=True)}
    for call, tree in zip(calls, trees, strict=True):
        given = _check_call(call, tree, [made.get(id(tensor)) for tensor in input_tensors(call.node)])
        outputs = tf.nest.flatten(call.node.outputs)
        known = given if len(given) == len(outputs) else [_latest(given)] * len(outputs)
        made.update((id(tensor), source) for tensor, source in zip(outputs, known, strict=True))
    return [made.get(id(tensor)) for tensor in calls.outputs]


def _check_call(call: LayerCall, tree: StageTree, given: list[Source]) -> list[Source]:
    if call.inner is not None and isinstance(tree, tuple):
        return _check_order(call.inner, tree, given)
    stage = _numbered(tree, call.layer, call.node_index)
    latest = _latest(given)
    if latest is not None and stage < latest[0]:
        raise ConfigurationError(
            f"Expected a layer to be in the stage of those whose outputs it takes, or in a later one. Received: call "
            f"{call.node_index} of layer {call.layer.name!r} in stage {stage}, which takes the output of {latest[1]!r} "
            f"in stage {latest[0]}. Nearest legal value: {latest[0]}."
        )
    return [(stage, call.layer.name)]


def _latest(sources: Sequence[Source]) -> Source:
    return max((source for source in sources if source is not None), key=lambda source: source[0], default=None)


def _numbered(stage: StageTree, layer: KerasLayer, index: int) -> int:
    if stage is None:
        raise ConfigurationError(
            f"Expected all layers to have a pipeline stage. Received: none for call {index} of layer {layer.name!r}. "
            f"Set its pipeline_stage, or call it inside a PipelineStage; reset_pipeline_stage_assignment() makes the "
            f"model one without stages."
        )
    return checked_integer(f"the pipeline stage of layer {layer.name!r}", stage, 0)
