"""A model of either Keras as a graph of calls of layers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar, Literal, TypeGuard

import tensorflow as tf

from keras_ext.pipelining.assignments import inbound_layers
from keras_ext.types import KerasLayer, KerasModel, KerasNode, Nest, Tensor

Kind = Literal["sequential", "functional", "subclass"]
Where = int | Callable[[], AbstractContextManager[None]]
"""The stage of a call; for a nested model in several stages a function that opens the context of its call."""
Stages = Callable[[Any], Mapping[int, Where]]
"""Function from a graph to the `Where` of each of its nodes, by the node's id."""


class Graphs(ABC):
    """The graphs of a framework's models, given its classes of sequential and functional ones.

    A graph is a functional model of Keras.
    """

    TAKES_TRAINING: ClassVar[str]
    """The attribute of a model that is true if its `call` takes `training`."""

    def __init__(self, sequential: Any, functional: Any) -> None:
        self._sequential, self._functional = sequential, functional

    def kind(self, model: KerasModel) -> Kind:
        """The kind of a model."""
        if isinstance(model, self._sequential):
            return "sequential"
        return "functional" if isinstance(model, self._functional) else "subclass"

    def overrides_call(self, model: KerasModel) -> bool:
        """Whether the class of a sequential or functional model has a `call` of its own."""
        return type(model).call not in (self._sequential.call, self._functional.call)

    @abstractmethod
    def graph(self, model: KerasModel) -> Any:
        """The graph of a sequential or functional model; None before it is built."""

    @abstractmethod
    def build(self, model: KerasModel, inputs: Nest) -> None:
        """Builds a sequential model for `inputs` (a tensor or spec), if it is not built."""

    def trace(self, model: KerasModel, inputs: Nest, training: bool | None) -> Any:
        """The graph of `call` of a subclass for `inputs`, nested tensors, specs, `Input`s or shapes."""
        symbols = self._symbols(inputs)
        named = {"training": training} if getattr(model, self.TAKES_TRAINING) and training is not None else {}
        return self._functional(symbols, type(model).call(model, symbols, **named))

    def _symbols(self, inputs: Nest) -> Any:
        if isinstance(inputs, tf.TensorShape) or is_shape(inputs):
            return self.symbol(tuple(inputs))
        if isinstance(inputs, dict):
            return {name: self._symbols(value) for name, value in inputs.items()}
        if isinstance(inputs, list | tuple):
            return type(inputs)(self._symbols(value) for value in inputs)
        return self.symbol(inputs)

    @abstractmethod
    def symbol(self, value: Tensor | tuple[int | None, ...]) -> Any:
        """An `Input` of Keras for a tensor, a spec, or a shape with its batch axis; returns an `Input` as it is."""

    @abstractmethod
    def operation(self, node: KerasNode) -> Any:
        """The layer that a node calls; in Keras 3 also an operation of `keras.ops`."""

    @abstractmethod
    def inputs(self, node: KerasNode) -> Any:
        """The first argument, nested symbolic tensors, with which a node calls its layer."""

    @abstractmethod
    def running(self, graph: KerasModel, stages: Stages) -> AbstractContextManager[None]:
        """Puts each call of `graph` in a traced step in the name scope of its stage, while the context is open."""

    def run(self, graph: KerasModel, inputs: Nest, training: bool | None, mask: Nest) -> Any:
        """The graph's outputs for `inputs`."""
        return graph.call(inputs, training=training, mask=mask)


def is_shape(value: object) -> bool:
    """Whether a value is a list or tuple of sizes, with None for unknown ones."""
    return isinstance(value, list | tuple) and all(size is None or isinstance(size, Integral) for size in value)


_known: list[tuple[type, Graphs]] = []


def register(model_class: type, graphs: Graphs) -> None:
    """Registers the graphs of one framework's models."""
    _known.append((model_class, graphs))


def graphs_of(model: KerasModel) -> Graphs:
    """The registered graphs of a model's framework."""
    return next(graphs for model_class, graphs in _known if isinstance(model, model_class))


def is_model(layer: KerasLayer) -> TypeGuard[KerasModel]:
    """Whether a layer is a model, which has a graph of its own or a `call`."""
    return any(isinstance(layer, model_class) for model_class, _ in _known)


@contextmanager
def replaced(holder: object, name: str, value: object) -> Iterator[None]:
    """Replaces an attribute of one object, not of its class, while the context is open."""
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
    """The nodes that the outputs of a graph depend on, except its inputs, depth first."""
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
