"""Graphs of subclasses of `Model`: traces of their `call` with symbolic inputs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.autograph.impl.api import autograph_artifact

from ipu._internal.compiler.variables import watching_reads
from ipu._internal.function_code import wraps
from keras_ext.pipelining.errors import StageAssignmentError, StageScopeError
from keras_ext.pipelining.graphs import graphs_of, replaced
from keras_ext.pipelining.opening import opens_inside
from keras_ext.pipelining.stage import allowing_scopes, is_inside_layer, refusing_scopes
from keras_ext.types import KerasModel, Nest, Tensor

_GRAPH, _FAILURE = "_ipu_graph", "_ipu_tracing_failure"


class _KeptTrace:
    """Wraps a graph that a model refers to, so that Keras does not save it as a part of the model."""

    def __init__(self, graph: KerasModel) -> None:
        self.graph = graph


@contextlib.contextmanager
def outside_traces(model: KerasModel) -> Iterator[None]:
    """Lets layers be built and called symbolically in the model's strategy, even while a step is traced."""
    with tf.init_scope(), contextlib.ExitStack() as stack:
        if not tf.distribute.has_strategy() or tf.distribute.in_cross_replica_context():
            stack.enter_context(model.distribute_strategy.scope())
        yield


def subclass_graph(model: KerasModel) -> Any:
    """The graph traced last; None before the first trace."""
    kept = vars(model).get(_GRAPH)
    return None if kept is None else kept.graph


def trace_subclass(model: KerasModel, inputs: Nest, training: bool | None = None) -> Any:
    """Traces `call` with symbols like `inputs`, nested tensors, specs, shapes or `keras.Input`s, and keeps the graph.

    Raises StageAssignmentError for a `call` that Keras cannot trace.
    """
    graph = traced_graph(model, inputs, training)
    vars(model)[_GRAPH] = _KeptTrace(graph)
    vars(model).pop(_FAILURE, None)
    return graph


def try_trace_subclass(model: KerasModel, inputs: Nest) -> None:
    """`trace_subclass` for a model without stages so far: a failure is reported when its stages are read later."""
    try:
        trace_subclass(model, inputs)
    except StageAssignmentError as error:
        vars(model)[_FAILURE] = str(error)


def tracing_failure(model: KerasModel) -> str | None:
    """The reason the model has no graph, if `try_trace_subclass` failed; else None."""
    return vars(model).get(_FAILURE)


def traced_graph(model: KerasModel, inputs: Nest, training: bool | None) -> Any:
    """The graph of `call`, in training or otherwise, not kept. Raises StageAssignmentError as `trace_subclass`."""
    in_a_layer = (
        f"Expected PipelineStage scopes in the call of {type(model).__name__} itself, around calls of its layers. A "
        f"layer is in one stage as a whole, but for models. Open scopes around its call."
    )
    # When traced again in a step, the model itself is a layer that is called.
    refusing = contextlib.nullcontext() if is_inside_layer() else refusing_scopes(in_a_layer, in_layers=True)
    try:
        with outside_traces(model), refusing, _scopes_in_nested(model), watching_reads(_refuse_read):
            return graphs_of(model).trace(model, inputs, training)
    except (StageScopeError, StageAssignmentError):
        raise
    except (TypeError, ValueError, AttributeError, NotImplementedError) as error:
        raise StageAssignmentError(
            f"Expected a model whose call can be traced with symbolic inputs, to find its pipeline stages. Received: "
            f"{type(model).__name__}, whose call raised {type(error).__name__}: {error}. Use layers and operations of "
            "Keras in call; put all other code into a layer. For a model without stages call "
            "reset_pipeline_stage_assignment()."
        ) from error


@contextlib.contextmanager
def _scopes_in_nested(model: KerasModel) -> Iterator[None]:
    """Lets subclasses of `Model` inside the model open scopes, which are read from graphs of their own."""
    with contextlib.ExitStack() as stack:
        for layer in model._flatten_layers(include_self=False):
            if opens_inside(layer):
                stack.enter_context(replaced(layer, "call", _with_scopes(layer.call)))
        yield


def _with_scopes(call: Callable[..., Any]) -> Callable[..., Any]:
    @autograph_artifact
    @wraps(call)
    def call_with_scopes(*arguments: object, **named: object) -> Any:
        with allowing_scopes():
            return call(*arguments, **named)

    return call_with_scopes


def _refuse_read(variable: Tensor) -> None:
    raise StageAssignmentError(
        f"Expected the call of a model with pipeline stages to use variables in layers, or in operations that also "
        f"take a tensor of its inputs. Received: {variable.name!r}, whose value is read while call is traced: later "
        f"ones would have no effect. Put the operations on it into a layer."
    )
