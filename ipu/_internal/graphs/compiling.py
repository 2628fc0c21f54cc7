"""`ipu_compiler.compile` in a tf.Graph: the computation becomes an operation, which a session executes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ipu._internal.compiler.calling import for_device
from ipu._internal.compiler.tokens import current_ordinal
from ipu._internal.compiler.trace import TracedStep
from ipu._internal.graphs.program import GraphProgram
from ipu._internal.graphs.session_operations import host_operation
from ipu._internal.graphs.sessions import programs_of, run_of
from ipu._internal.graphs.tracing import trace_in_graph
from ipu._internal.graphs.variables import running
from ipu._internal.types import Nest


def compile_in_graph(computation: Callable[..., Any], inputs: Sequence[Nest]) -> Any:
    """Adds an operation that executes `computation` of `inputs`, nested tensors, as one program to the default graph.

    Its device is that of the scope. It is compiled when a session first executes it, for the shapes that are fed.
    Returns the results of `computation`, nested tensors, or an operation if it returned one.
    Raises the errors of `trace_in_graph`. The session raises the errors of compilation and execution.
    """
    ordinal = _ordinal()
    function = trace_in_graph(computation, inputs, ordinal)
    operation, results = GraphProgram(function, ordinal).operation()
    with tf.device(None), tf.device("/device:CPU:0"):
        if function.results is None:
            with tf.control_dependencies([operation]):
                return tf.no_op()
        return tf.nest.pack_sequence_as(function.results, results, expand_composites=True)


def write_in_graph(
    computation: Callable[..., Any], inputs: Sequence[Nest], write: Callable[[TracedStep], str], name: str | None
) -> tf.Tensor:
    """Adds an operation that traces `computation` of `inputs`, nested tensors, and calls `write` to write it to a file.

    Its variables are in the graph from now on; each run of the operation writes their values in its session. Tensors of
    the graph that `computation` captures have their values in that run.
    Returns the path that `write` returns, as a scalar of strings. Raises the errors of `trace_in_graph`.
    """
    function = trace_in_graph(computation, inputs, 0)
    programs = programs_of(tf.compat.v1.get_default_graph())
    given = len(tf.nest.flatten(list(inputs)))
    known = [tensor.shape.is_fully_defined() for tensor in function.inputs[:given]]
    fed = [k for k in range(len(function.inputs)) if k >= given or not known[k]]

    def call(number: np.ndarray, *arrays: np.ndarray) -> list[np.ndarray]:
        values = dict(zip(fed, map(np.asarray, arrays), strict=True))
        shapes = [values[k].shape if k in values else tuple(t.shape) for k, t in enumerate(function.inputs)]
        with running(run_of(number)):
            step = function.step(shapes, {k: array for k, array in values.items() if k >= given})
            return [np.array(write(for_device(step, 0)), object)]

    tensors = [programs.run_number, *(function.inputs[k] for k in fed)]
    (path,) = host_operation(call, tensors, [tf.TensorSpec([], tf.string)])
    programs.operations.add(path.op)
    return tf.identity(path, name)


def _ordinal() -> int:
    """The ordinal of the IPU device in scope, or of the strategy."""
    placed = re.search(r"IPU:(\d+)$", tf.no_op(name="ipu_device").device, re.IGNORECASE)
    return int(placed[1]) if placed else current_ordinal()
