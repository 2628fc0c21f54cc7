"""The stage of each call of a model: a number, or a tuple for a nested model that is in several stages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from keras_ext.pipelining.calls import Calls, LayerCall
from keras_ext.pipelining.stage import noted_stage

StageTree = Any
"""The stage of a call; None for none, or a tuple with one StageTree for each of a nested model's own calls."""


def flat(trees: Sequence[StageTree]) -> Iterator[int | None]:
    """The stages in trees, in order; None for calls without one."""
    for tree in trees:
        if isinstance(tree, tuple):
            yield from flat(tree)
        else:
            yield tree


def of_leaves(calls: Calls, trees: Sequence[StageTree]) -> list[int | None]:
    """The stage of each call of a layer that is no nested model."""
    found: list[int | None] = []
    for call, tree in zip(calls, trees, strict=True):
        if isinstance(tree, tuple):
            assert call.inner is not None
            found += of_leaves(call.inner, tree)
        else:
            found += [tree] * len(call.leaves)
    return found


def joined(trees: Sequence[StageTree]) -> StageTree:
    """The tree of a nested model: a number if all of it is in one stage."""
    stages = set(flat(trees))
    return stages.pop() if len(stages) == 1 else tuple(trees)


def spread(call: LayerCall, tree: StageTree) -> tuple[StageTree, ...]:
    """The trees of the calls in a nested model."""
    assert call.inner is not None
    return tree if isinstance(tree, tuple) else (tree,) * len(call.inner)


def noted(calls: Calls, default: int | None = None) -> tuple[StageTree, ...]:
    """The stages of PipelineStage scopes.

    The scope of a layer's call overrides that of its construction; the scope of a nested model's call overrides those
    inside the model, which override that of its construction.
    """
    return tuple(_noted_of(call, calls.kind != "sequential", default) for call in calls)


def _noted_of(call: LayerCall, by_call: bool, default: int | None) -> StageTree:
    of_call = noted_stage(call.node) if by_call else None
    if of_call is not None:
        return of_call
    of_layer = noted_stage(call.layer)
    stage = default if of_layer is None else of_layer
    return stage if call.inner is None else joined(noted(call.inner, stage))


def completed(calls: Sequence[Any], known: Mapping[int, StageTree]) -> dict[int, StageTree]:
    """The stages of calls (anything with a Keras `node`, in topological order) by the id of the node.

    A stage that is not known is the latest stage of the nodes whose outputs the call takes, or 0.
    """
    found = dict(known)
    for call in calls:
        if id(call.node) not in found:
            before = flat([found[id(node)] for node in call.node.parent_nodes if id(node) in found])
            found[id(call.node)] = max((stage or 0 for stage in before), default=0)
    return found


def to_saved(calls: Calls, trees: Sequence[StageTree]) -> list[Any]:
    """Trees in a form for JSON: a list of stages for a sequential model, otherwise triples of the layer's number in
    the order of first calls, the index of its call, and the stage. A nested model in several stages has such a list
    as its stage.
    """
    stages = [
        to_saved(call.inner, tree) if isinstance(tree, tuple) and call.inner is not None else tree
        for call, tree in zip(calls, trees, strict=True)
    ]
    if calls.kind == "sequential":
        return stages
    return [[*key, stage] for key, stage in zip(_keys(calls), stages, strict=True)]


def from_saved(calls: Calls, saved: Sequence[Any]) -> tuple[StageTree, ...] | None:
    """The trees of `to_saved`'s form; None if they are those of other calls."""
    if calls.kind == "sequential":
        stages = list(saved)
        if len(stages) != len(calls):
            return None
    else:
        by_call = {(layer, index): stage for layer, index, stage in saved}
        if set(by_call) != set(_keys(calls)):
            return None
        stages = [by_call[key] for key in _keys(calls)]
    trees = []
    for call, stage in zip(calls, stages, strict=True):
        if isinstance(stage, list):
            inner = None if call.inner is None else from_saved(call.inner, stage)
            if inner is None:
                return None
            stage = joined(inner)
        trees.append(stage)
    return tuple(trees)


def _keys(calls: Calls) -> list[tuple[int, int]]:
    """Number of each call's layer, in the order of first calls, and the index of the call: can be saved."""
    numbers: dict[int, int] = {}
    return [(numbers.setdefault(id(call.layer), len(numbers)), call.node_index) for call in calls]
