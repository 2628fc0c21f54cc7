"""A model as a tree of calls of layers: the calls in nested models, which stages can cut, are children of its call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from keras_ext.pipelining.errors import StageAssignmentError
from keras_ext.pipelining.graphs import Invocation, Kind, graphs_of, invocations, is_model
from keras_ext.pipelining.opening import is_subclass, opens_inside
from keras_ext.pipelining.stage import noted_stage
from keras_ext.pipelining.subclasses import subclass_graph, tracing_failure, try_trace_subclass
from keras_ext.types import KerasLayer, KerasModel, KerasNode


@dataclass(frozen=True, slots=True)
class LayerCall:
    """A call of a layer. `node_index` counts the calls of the layer in the model that calls it, from 0.

    `inbound` are the layers whose outputs it takes, `node` is Keras' node, None in a sequential model that is not
    built. `inner` are the calls in a nested model that is sequential or functional, or a subclass that opens
    PipelineStages; None for other layers.
    """

    layer: Any
    node_index: int
    inbound: list[Any]
    node: Any
    inner: Calls | None

    @property
    def leaves(self) -> tuple[LayerCall, ...]:
        """The calls of layers in it that are no nested models; itself, if it is one."""
        return (self,) if self.inner is None else self.inner.leaves


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls in a model in the order of execution; `inputs` and `outputs` are its symbolic tensors, if any."""

    kind: Kind
    of: tuple[LayerCall, ...]
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]

    def __iter__(self) -> Iterator[LayerCall]:
        return iter(self.of)

    def __len__(self) -> int:
        return len(self.of)

    @property
    def leaves(self) -> tuple[LayerCall, ...]:
        """All calls of layers that are no nested models."""
        return tuple(leaf for call in self.of for leaf in call.leaves)


def calls_of(model: KerasModel) -> Calls:
    """The calls of a model's layers, inputs left out: each layer once in a sequential model, in post-order in others.

    Raises StageAssignmentError for a subclass of `Model` that has not been built.
    """
    graphs, graph = graphs_of(model), model_graph(model)
    kind = graphs.kind(model)
    made = [] if graph is None else invocations(graphs, graph)
    if kind != "sequential":
        return _calls(kind, made, graph)
    layers = list(model.layers)
    if len(made) == len(layers):
        return _calls(kind, made, graph)
    return Calls(kind, tuple(_in_chain(layers)), (), ())


def _calls(kind: Kind, made: Sequence[Invocation], graph: KerasModel) -> Calls:
    calls = [LayerCall(i.layer, i.node_index, i.inbound, i.node, _inner(i.layer, i.node)) for i in made]
    return Calls(kind, tuple(calls), tuple(tf.nest.flatten(graph.inputs)), tuple(tf.nest.flatten(graph.outputs)))


def _in_chain(layers: Sequence[Any]) -> Iterator[LayerCall]:
    before: list[Any] = []
    for layer in layers:
        yield LayerCall(layer, 0, before, None, _inner(layer, None))
        before = [layer]


def _inner(layer: KerasLayer, node: KerasNode | None) -> Calls | None:
    """The calls in a nested model that a node calls; None for a layer, and for a model that stages cannot cut."""
    if not is_model(layer):
        return None
    if is_subclass(layer):
        return _inner_of_subclass(layer, node)
    if graphs_of(layer).overrides_call(layer):
        return None
    return calls_of(layer) if layer.layers and calls_of(layer).of else None


def _inner_of_subclass(layer: KerasLayer, node: KerasNode | None) -> Calls | None:
    """The calls in a subclass of `Model` that opens PipelineStages, traced with the node's inputs."""
    if not opens_inside(layer):
        return None
    if subclass_graph(layer) is None and node is not None:
        given = graphs_of(layer).inputs(node)
        if all(hasattr(tensor, "_keras_history") for tensor in tf.nest.flatten(given)):
            try_trace_subclass(layer, tf.nest.map_structure(lambda each: tf.TensorSpec(each.shape, each.dtype), given))
    if subclass_graph(layer) is None:
        return None
    calls = calls_of(layer)
    return calls if _are_in_scopes(calls) else None


def has_scopes_inside(layer: KerasLayer) -> bool:
    """Whether a layer is a subclass of `Model` that opens scopes and has a graph, or a model that contains one."""
    if not is_model(layer):
        return False
    if is_subclass(layer):
        return opens_inside(layer) and subclass_graph(layer) is not None
    return not graphs_of(layer).overrides_call(layer) and any(has_scopes_inside(inner) for inner in layer.layers)


def _are_in_scopes(calls: Calls) -> bool:
    noted = any(noted_stage(made) is not None for call in calls for made in (call.node, call.layer))
    return noted or any(call.inner is not None and _are_in_scopes(call.inner) for call in calls)


def model_graph(model: KerasModel) -> Any:
    """The graph of a model; None for a sequential model before it is built.

    Raises StageAssignmentError for a subclass of `Model` that has not been built.
    """
    graphs = graphs_of(model)
    if graphs.kind(model) != "subclass":
        return graphs.graph(model)
    graph = subclass_graph(model)
    if graph is None:
        failure = tracing_failure(model)
        raise StageAssignmentError(
            f"Expected a model that has been built. Received: {type(model).__name__} {model.name!r}, whose layers are "
            "known only once its call has been traced. Call build() on it with the shapes of its inputs first."
            + (f" When it was built, its call could not be traced: {failure}" if failure else "")
        )
    return graph
