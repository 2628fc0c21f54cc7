"""Graphs of subclasses of `Model`: what their `call` does with symbolic inputs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from keras_ext.pipelining.errors import StageAssignmentError, StageScopeError
from keras_ext.pipelining.graphs import graphs_of

_GRAPH = "_ipu_graph"


class _Kept:
    """Around a graph that belongs to a model without being a part of it that Keras would save."""

    def __init__(self, graph: Any) -> None:
        self.graph = graph


@contextlib.contextmanager
def outside_traces(model: Any) -> Iterator[None]:
    """Layers can be built and called symbolically within, in the model's strategy, whatever is being traced."""
    with tf.init_scope(), contextlib.ExitStack() as stack:
        if not tf.distribute.has_strategy() or tf.distribute.in_cross_replica_context():
            stack.enter_context(model.distribute_strategy.scope())
        yield


def subclass_graph(model: Any) -> Any:
    """The graph traced last; None before."""
    kept = vars(model).get(_GRAPH)
    return None if kept is None else kept.graph


def trace_subclass(model: Any, inputs: Any, training: bool | None = None) -> Any:
    """Traces `call` with symbols like `inputs`, nested tensors, specs, shapes or `keras.Input`s, and keeps the graph.

    Raises StageAssignmentError for a `call` that Keras cannot trace.
    """
    graph = traced_graph(model, inputs, training)
    vars(model)[_GRAPH] = _Kept(graph)
    return graph


def traced_graph(model: Any, inputs: Any, training: bool | None) -> Any:
    """The same without keeping it, for `call` in training or otherwise."""
    try:
        with outside_traces(model):
            return graphs_of(model).trace(model, inputs, training)
    except StageScopeError:
        raise
    except (TypeError, ValueError, AttributeError, NotImplementedError) as error:
        raise StageAssignmentError(
            f"Expected a model whose call can be traced with symbolic inputs, to find its pipeline stages. Received: "
            f"{type(model).__name__}, whose call raised {type(error).__name__}: {error}. Use layers and operations of "
            "Keras in call; put what else there is into a layer."
        ) from error
