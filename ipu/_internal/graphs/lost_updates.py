"""Updates of variables that a computation creates but does not return: a loop of TensorFlow 1 would leave them out."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import tensorflow as tf

from engine.errors import ConfigurationError
from ipu._internal.compiler.graph_structure import nested_operations
from ipu._internal.graphs.sessions import reached
from ipu._internal.types import Nest


class _Tracing(threading.local):
    in_graph: bool = False


_tracing = _Tracing()


@contextlib.contextmanager
def refusing_lost_updates() -> Iterator[None]:
    """Marks the tracing of a computation of a tf.Graph, while the context is open."""
    outer, _tracing.in_graph = _tracing.in_graph, True
    try:
        yield
    finally:
        _tracing.in_graph = outer


def check_updates(returned: Nest) -> None:
    """Raises ConfigurationError if a computation of a tf.Graph, or its loop, creates but loses an optimizer's update.

    `returned` are tensors and operations. Operations on which none of them depends are executed here, too, in program
    order, as in a tf.function.
    """
    if not _tracing.in_graph:
        return
    roots = [getattr(each, "op", each) for each in tf.nest.flatten(returned)]
    needed = set(reached(each for each in roots if isinstance(each, tf.Operation)))
    for operation in tf.compat.v1.get_default_graph().get_operations():
        if operation not in needed and _updates(operation):
            raise ConfigurationError(
                f"Expected a computation to return the training operations that it creates, or tensors that depend on "
                f"them. Received: {operation.name!r}, which nothing returned depends on. Return the result of "
                f"minimize, or do not call it."
            )


def _updates(operation: tf.Operation) -> bool:
    """Whether an operation is an optimizer's update, or calls one in a branch, loop or function."""
    return any(each.type.startswith("ResourceApply") for each, _ in nested_operations([operation]))
