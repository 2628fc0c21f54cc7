"""Graphs of Keras 3 models, with their calls in the name scopes of stages."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.common import global_state
from keras.src.layers.layer import might_have_unbuilt_state
from keras.src.models.functional import Functional
from keras.src.models.model import Model
from keras.src.models.sequential import Sequential
from keras.src.ops.node import Node
from keras.src.ops.operation import Operation

from ipu._internal.compiler.variables import tracing
from keras_ext.frameworks.common import serves
from keras_ext.pipelining import graphs
from keras_ext.pipelining.assigned import may_have_stages
from keras_ext.pipelining.graphs import Graphs, Stages, replaced
from keras_ext.pipelining.scopes import StageScopes
from keras_ext.pipelining.stage import inside_layer_call, noting_stages
from keras_ext.pipelining.subclasses import outside_traces, trace_subclass, tracing_failure, try_trace_subclass
from keras_ext.types import Config, Nest, Tensor
from keras_ext.wrapping import Original, wrap

_CALLED = "_ipu_built_by_call"


class Keras3Graphs(Graphs):
    """The graphs of Keras 3 models."""

    TAKES_TRAINING = "_call_has_training_arg"

    def graph(self, model: Model) -> Any:
        return model._functional if isinstance(model, Sequential) else model

    def build(self, model: Model, inputs: Nest) -> None:
        if model._functional is None and hasattr(inputs, "shape"):
            model.build(tuple(tf.TensorShape(inputs.shape).as_list()))

    def symbol(self, value: Tensor | tuple[int | None, ...]) -> Any:
        if isinstance(value, tuple):
            return keras.Input(batch_shape=value)
        if isinstance(value, keras.KerasTensor) and hasattr(value, "_keras_history"):
            return value
        dtype = value.dtype if isinstance(value.dtype, str) else value.dtype.name
        return keras.Input(batch_shape=tuple(tf.TensorShape(value.shape).as_list()), dtype=dtype)

    def operation(self, node: Node) -> Any:
        return node.operation

    def inputs(self, node: Node) -> Any:
        return next(iter((*node.arguments.args, *node.arguments.kwargs.values())))

    @contextlib.contextmanager
    def running(self, graph: Functional, stages: Stages) -> Iterator[None]:
        def run(
            inputs: Nest, operation_fn: Callable[[Any], Any] = lambda op: op, call_fn: Callable[..., Any] | None = None
        ) -> Any:
            if not tracing():
                return Functional._run_through_graph(graph, inputs, operation_fn, call_fn)
            scopes, of_node, nodes = StageScopes(), stages(graph), _executed(graph)

            def in_stage(operation: Operation) -> Callable[..., Any]:
                node = next(node for node in nodes if node.operation is operation)
                return scopes.called_in(of_node[id(node)], operation_fn(operation))

            return Functional._run_through_graph(graph, inputs, in_stage, call_fn)

        with replaced(graph, "_run_through_graph", run):
            yield


def _executed(graph: Functional) -> Iterator[Any]:
    """The nodes in the order in which Keras calls their operations."""
    for depth in sorted(graph._nodes_by_depth, reverse=True):
        yield from (node for node in graph._nodes_by_depth[depth] if node.operation and not node.is_input)


def install() -> None:
    """Wraps the constructors of layers, calls and models, and `build`, at class level."""
    graphs.register(Model, Keras3Graphs(Sequential, Functional))
    inside_layer_call.append(lambda: global_state.get_global_attribute("current_call_ctx") is not None)
    Operation.__init__ = noting_stages(Operation.__init__)
    Node.__init__ = noting_stages(Node.__init__)
    wrap(Model, "__init__", _init)
    wrap(Model, "build", _build)
    Model.build._is_default = True  # Keras must not take it for a `build` of the class' own
    wrap(Model, "_maybe_build", _build_called)
    wrap(Model, "get_build_config", _get_build_config)
    wrap(Model, "build_from_config", _build_from_config)


def _init(init: Original, model: Model, *arguments: object, **named: object) -> None:
    """Accepts the model as its own argument: programs for IPUs call `super().__init__(self)`, as for earlier Keras."""
    init(model, *(() if len(arguments) == 1 and arguments[0] is model else arguments), **named)


def _build(build: Original, model: Model, input_shape: Nest) -> None:
    """Makes `build` of a subclass, which Keras leaves to its users, trace `call` in a strategy.

    If `call` cannot be traced, Keras builds the layers from the shape, or leaves them to the first batch.
    """
    if not _is_own_subclass(model):
        build(model, input_shape)
    elif vars(model).get(_CALLED):
        # The shape is of the first argument only, and a call of a model needs no graph.
        if may_have_stages(model):
            try_trace_subclass(model, input_shape)
    elif may_have_stages(model):
        trace_subclass(model, input_shape)
    else:
        try_trace_subclass(model, input_shape)
        if tracing_failure(model) is not None and might_have_unbuilt_state(model):
            with outside_traces(model):
                if not model._build_by_run_for_single_pos_arg(input_shape):
                    build(model, input_shape)


def _is_own_subclass(model: Model) -> bool:
    """Whether a model of a strategy has a `call` of its own."""
    return not isinstance(model, Sequential | Functional) and serves(getattr(model, "_distribute_strategy", None))


def _build_called(maybe_build: Original, model: Model, *arguments: object, **named: object) -> None:
    """Marks a model while Keras' own `__call__`, and not its user, builds it."""
    with replaced(model, _CALLED, True):
        maybe_build(model, *arguments, **named)


def _get_build_config(get_build_config: Original, model: Model) -> Any:
    """The build config as shapes: files cannot contain `keras.Input`s."""
    config = get_build_config(model)
    return config and {name: _as_shapes(value) for name, value in config.items()}


def _as_shapes(value: Nest) -> Any:
    if isinstance(value, keras.KerasTensor):
        return tuple(tf.TensorShape(value.shape).as_list())
    if isinstance(value, dict):
        return {name: _as_shapes(inner) for name, inner in value.items()}
    return type(value)(map(_as_shapes, value)) if type(value) in (list, tuple) else value


def _build_from_config(build_from_config: Original, model: Model, config: Config) -> None:
    """Traces the graph of a subclass with stages again when it is loaded from a file."""
    build_from_config(model, config)
    if _is_own_subclass(model) and config and "input_shape" in config and may_have_stages(model):
        trace_subclass(model, config["input_shape"])
