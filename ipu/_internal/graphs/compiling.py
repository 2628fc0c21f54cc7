"""`ipu_compiler.compile` in a tf.Graph: the computation becomes an operation, which a session executes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ipu._internal.compiler.tokens import current_ordinal
from ipu._internal.graphs.program import GraphProgram
from ipu._internal.graphs.tracing import trace_in_graph
from ipu._internal.types import Nest


def compile_in_graph(computation: Callable[..., Any], inputs: Sequence[Nest]) -> Any:
    """Adds an operation that executes `computation` of `inputs`, nested tensors, as one program to the default graph.

    Its device is that of the scope. It is compiled when a session first executes it, for the shapes that are fed.
    Returns the results of `computation`, nested tensors, or an operation if it returned one.
    Raises as `trace_in_graph`; the session raises the errors of compilation and execution.
    """
    ordinal = _ordinal()
    function = trace_in_graph(computation, inputs, ordinal)
    operation, results = GraphProgram(function, ordinal).operation()
    with tf.device(None), tf.device("/device:CPU:0"):
        if function.results is None:
            with tf.control_dependencies([operation]):
                return tf.no_op()
        return tf.nest.pack_sequence_as(function.results, results)


def _ordinal() -> int:
    """The ordinal of the IPU device in scope, or of the strategy."""
    placed = re.search(r"IPU:(\d+)$", tf.no_op(name="ipu_device").device, re.IGNORECASE)
    return int(placed[1]) if placed else current_ordinal()
