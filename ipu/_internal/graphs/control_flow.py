"""Loops and branches that are built on an IPU in a tf.Graph: they consist of functions, as the compiler reads them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.ops import control_flow_ops, control_flow_util, control_flow_util_v2


@contextlib.contextmanager
def xla_context() -> Iterator[None]:
    """XLA's context in the default graph, while it is open: loops get the static bounds that XLA needs."""
    xla = control_flow_ops.XLAControlFlowContext()
    xla.Enter()
    try:
        yield
    finally:
        xla.Exit()


@contextlib.contextmanager
def functional_control_flow() -> Iterator[None]:
    """Makes `tf.cond` and `tf.while_loop` build functions, in place of version 1's operations, while it is open.

    What their gradients need of a branch are arrays then, as the compiler has no kernels for optional values. Inside a
    loop or a branch of version 1 it changes nothing.
    """
    if in_version_1(tf.compat.v1.get_default_graph()):
        yield
        return
    before = control_flow_util.ENABLE_CONTROL_FLOW_V2
    outputs_all = control_flow_util_v2._EXPERIMENTAL_OUTPUT_ALL_INTERMEDIATES_OVERRIDE
    control_flow_util.ENABLE_CONTROL_FLOW_V2 = True
    control_flow_util_v2.set_output_all_intermediates(False)
    try:
        with context.temporarily_disable_optionals_in_gradients(), xla_context():
            yield
    finally:
        control_flow_util.ENABLE_CONTROL_FLOW_V2 = before
        control_flow_util_v2.set_output_all_intermediates(outputs_all)


def in_version_1(graph_or_operation: Any) -> bool:
    """Whether an operation is, or the next one of a graph will be, in a loop or a branch of version 1."""
    inner = graph_or_operation._get_control_flow_context()
    while inner is not None and inner.IsXLAContext():
        inner = inner.outer_context
    return inner is not None
