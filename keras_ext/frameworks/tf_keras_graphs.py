"""Graphs of tf_keras models, with their calls in the name scopes of stages."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf
import tf_keras
from tf_keras.src.engine import base_layer, base_layer_utils
from tf_keras.src.engine.functional import Functional
from tf_keras.src.engine.keras_tensor import KerasTensor
from tf_keras.src.engine.node import Node
from tf_keras.src.engine.sequential import Sequential
from tf_keras.src.engine.training import Model

from ipu._internal.compiler.variables import tracing
from keras_ext.frameworks.common import serves
from keras_ext.pipelining import graphs
from keras_ext.pipelining.assigned import may_have_stages
from keras_ext.pipelining.graphs import Graphs, Stages, Where, replaced
from keras_ext.pipelining.scopes import StageScopes
from keras_ext.pipelining.stage import inside_layer_call, noting_stages
from keras_ext.pipelining.subclasses import trace_subclass, try_trace_subclass
from keras_ext.types import Nest, Tensor
from keras_ext.wrapping import Original, wrap


class TFKerasGraphs(Graphs):
    """The graphs of tf_keras models; operations of TensorFlow are layers of their own in them."""

    TAKES_TRAINING = "_expects_training_arg"

    def graph(self, model: Model) -> Any:
        return model if not isinstance(model, Sequential) or model._graph_initialized else None

    def build(self, model: Model, inputs: Nest) -> None:
        if not model._graph_initialized and hasattr(inputs, "shape"):
            model._build_graph_network_for_inferred_shape(inputs.shape, inputs.dtype)

    def symbol(self, value: Tensor | tuple[int | None, ...]) -> Any:
        if isinstance(value, tuple):
            return tf_keras.Input(batch_shape=value)
        if isinstance(value, KerasTensor):
            return value
        return tf_keras.Input(batch_shape=tf.TensorShape(value.shape).as_list(), dtype=value.dtype)

    def operation(self, node: Node) -> Any:
        return node.layer

    def inputs(self, node: Node) -> Any:
        return next(iter((*node.call_args, *node.call_kwargs.values())))

    @contextlib.contextmanager
    def running(self, graph: Functional, stages: Stages) -> Iterator[None]:
        def run(inputs: Nest, training: bool | None = None, mask: Nest = None) -> Any:
            if not tracing():
                return Functional._run_internal_graph(graph, inputs, training=training, mask=mask)
            with _layers_in(StageScopes(), stages(graph), graph):
                return Functional._run_internal_graph(graph, inputs, training=training, mask=mask)

        with replaced(graph, "_run_internal_graph", run):
            yield


@contextlib.contextmanager
def _layers_in(scopes: StageScopes, stages: Mapping[int, Where], graph: Functional) -> Iterator[None]:
    """Wraps each `node.layer`, which Keras calls, to enter the stage's scope first, while the context is open."""
    nodes = [node for nodes in graph._nodes_by_depth.values() for node in nodes if id(node) in stages]
    layers = [node.layer for node in nodes]
    try:
        for node in nodes:
            node.layer = scopes.called_in(stages[id(node)], node.layer)
        yield
    finally:
        for node, layer in zip(nodes, layers, strict=True):
            node.layer = layer


def install() -> None:
    """Wraps the constructors of layers and calls, and `build`, at class level."""
    graphs.register(Model, TFKerasGraphs(Sequential, Functional))
    inside_layer_call.append(lambda: bool(base_layer_utils.call_context().in_call))
    base_layer.Layer.__init__ = noting_stages(base_layer.Layer.__init__)
    Node.__init__ = noting_stages(Node.__init__)
    wrap(Model, "build", _build)


def _build(build: Original, model: Model, input_shape: Nest) -> None:
    """Makes `build` of a subclass also trace `call` in a strategy, for shapes or for `Input`s."""
    if isinstance(model, Sequential | Functional) or not serves(getattr(model, "_distribution_strategy", None)):
        return build(model, input_shape)
    with model._distribution_strategy.scope():
        (trace_subclass if may_have_stages(model) else try_trace_subclass)(model, input_shape)
        build(model, tf.nest.map_structure(_shape_of, input_shape))


def _shape_of(element: Nest) -> Any:
    return element.shape if isinstance(element, KerasTensor) else element
