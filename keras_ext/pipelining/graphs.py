"""A model as a graph of calls of layers, whichever Keras it is of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeGuard

import tensorflow as tf

from keras_ext.pipelining.assignments import inbound_layers
from keras_ext.types import KerasLayer, KerasModel, KerasNode, Nest

Kind = Literal["sequential", "functional", "subclass"]
Where = int | Callable[[], AbstractContextManager[None]]
"""The stage of a call; of that of a nested model in several stages what it is called within."""
Stages = Callable[[Any], Mapping[int, Where]]
"""Gives for a graph where each of its nodes is, by the node's id."""


class Graphs(Protocol):
    """What a file in `frameworks` knows about the graphs of its models. A graph is a functional model of Keras."""

    def kind(self, model: KerasModel) -> Kind:
        """What sort of model it is."""

    def overrides_call(self, model: KerasModel) -> bool:
        """Whether the class of a sequential or functional model has a `call` of its own."""

    def graph(self, model: KerasModel) -> Any:
        """The graph of a sequential or functional model; None before it is built."""

    def build(self, model: KerasModel, inputs: Nest) -> None:
        """Builds a sequential model for `inputs` (tensors or specs), if it is not built."""

    def trace(self, model: KerasModel, inputs: Nest, training: bool | None) -> Any:
        """The graph of what `call` of a subclass does with `inputs`, nested tensors, specs or shapes."""

    def operation(self, node: KerasNode) -> Any:
        """The layer that a node calls."""

    def inputs(self, node: KerasNode) -> Any:
        """The first argument, nested symbolic tensors, with which a node calls its layer."""

    def running(self, graph: KerasModel, stages: Stages) -> AbstractContextManager[None]:
        """Where `graph` runs within while a step is traced, each call is in the name scope of its stage."""

    def run(self, graph: KerasModel, inputs: Nest, training: bool | None, mask: Nest) -> Any:
        """What the graph does with `inputs`."""


class FrameworkGraphs:
    """What the graphs of both Keras have in common, given the classes of sequential and functional models."""

    def __init__(self, sequential: Any, functional: Any) -> None:
        self._sequential, self._functional = sequential, functional

    def kind(self, model: KerasModel) -> Kind:
        """What sort of model it is."""
        if isinstance(model, self._sequential):
            return "sequential"
        return "functional" if isinstance(model, self._functional) else "subclass"

    def overrides_call(self, model: KerasModel) -> bool:
        """Whether the class of a sequential or functional model has a `call` of its own."""
        return type(model).call not in (self._sequential.call, self._functional.call)

    def run(self, graph: KerasModel, inputs: Nest, training: bool | None, mask: Nest) -> Any:
        """What the graph does with `inputs`."""
        return graph.call(inputs, training=training, mask=mask)


def is_shape(value: object) -> bool:
    """Whether a value is a list or tuple of sizes, None among them for those that are not known."""
    return isinstance(value, list | tuple) and all(size is None or isinstance(size, int) for size in value)


_known: list[tuple[type, Graphs]] = []


def register(model_class: type, graphs: Graphs) -> None:
    """Makes models of one framework known."""
    _known.append((model_class, graphs))


def graphs_of(model: KerasModel) -> Graphs:
    """What knows the graphs of a model."""
    return next(graphs for model_class, graphs in _known if isinstance(model, model_class))


def is_model(layer: KerasLayer) -> TypeGuard[KerasModel]:
    """Whether a layer is a model, which has a graph of its own or a `call`."""
    return any(isinstance(layer, model_class) for model_class, _ in _known)


@contextmanager
def replaced(holder: object, name: str, value: object) -> Iterator[None]:
    """An attribute of one object, not of its class, is another within."""
    before = vars(holder).get(name)
    vars(holder)[name] = value
    try:
        yield
    finally:
        if before is None:
            del vars(holder)[name]
        else:
            vars(holder)[name] = before


@dataclass(frozen=True, slots=True)
class Invocation:
    """A call of a layer in a graph; `inbound` are the layers whose outputs it takes."""

    layer: Any
    node_index: int
    node: Any
    inbound: list[Any]


def invocations(graphs: Graphs, graph: KerasModel) -> list[Invocation]:
    """The calls of layers in a graph, inputs left out, in post-order: each after those whose outputs it takes."""
    nodes = list(_post_order(graph.outputs))
    calls: dict[int, list[Any]] = {}
    for node in nodes:
        calls.setdefault(id(graphs.operation(node)), []).append(node)
    indices: dict[int, int] = {}
    for of_layer in calls.values():
        made = {id(node): number for number, node in enumerate(graphs.operation(of_layer[0])._inbound_nodes)}
        for index, node in enumerate(sorted(of_layer, key=lambda node: made[id(node)])):
            indices[id(node)] = index
    return [Invocation(graphs.operation(node), indices[id(node)], node, inbound_layers(node)) for node in nodes]


def _post_order(outputs: Nest) -> Iterator[Any]:
    """The nodes behind the outputs of a graph, but its inputs, depth first."""
    seen: set[int] = set()
    for tensor in tf.nest.flatten(outputs):
        operation, index = tensor._keras_history[:2]
        stack = [(operation._inbound_nodes[index], False)]
        while stack:
            node, is_done = stack.pop()
            if is_done:
                yield node
                continue
            if id(node) in seen or node.is_input:
                continue
            seen.add(id(node))
            stack.append((node, True))
            stack += [(parent, False) for parent in reversed(node.parent_nodes)]
