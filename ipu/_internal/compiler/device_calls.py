"""Device operations inside traced functions: custom calls, and those that execute in program order."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops
from tensorflow.python.framework import func_graph, ops
from tensorflow.python.ops.cond_v2 import _CondGradFuncGraph
from tensorflow.python.ops.while_v2 import _WhileBodyGradFuncGraph

from engine.errors import UnsupportedOperation
from ipu._internal.compiler.tokens import device_token
from ipu._internal.compiler.variables import tracing

VERSION_1 = (
    "A program of TensorFlow 1 has two lines first: `import tensorflow.compat.v1 as tf` and `tf.disable_v2_behavior()`."
)
"""The change to a program that calls eagerly what it wrote for a graph."""


def device_call(
    target: str,
    operands: Sequence[Any],
    config: dict[str, Any],
    results: Sequence[tf.TensorSpec],
    has_side_effect: bool = False,
) -> list[Any]:
    """One tensor for each of `results`, from a custom call. It has no gradient: wrap it in tf.custom_gradient."""
    tensors = gen_xla_ops.xla_custom_call_v2(
        list(operands),
        target,
        json.dumps(config),
        has_side_effect,
        [spec.dtype for spec in results],
        [spec.shape for spec in results],
    )
    for tensor, spec in zip(tensors, results, strict=True):
        tensor.set_shape(spec.shape)
    return list(tensors)


def in_graph(tensors: Sequence[Any]) -> list[Any]:
    """The tensors in the graph being built, which captures those of a graph around it.

    The gradient that tf.custom_gradient calls may use no others: TensorFlow finds those of the branch itself alone, for
    a branch in a loop.
    """
    graph = ops.get_default_graph()
    if not isinstance(graph, func_graph.FuncGraph):
        return list(tensors)
    return [graph.capture(tf.convert_to_tensor(each)) for each in tensors]  # a variable is read in the graph


def ordered_call(
    target: str, operands: Sequence[Any], config: dict[str, Any], results: Sequence[tf.TensorSpec] = ()
) -> tuple[list[Any], Any]:
    """The results of a custom call that executes in program order, and an operation to depend on.

    The last operand and the last result are the token of the device of the strategy in scope. Raises
    UnsupportedOperation in the backward pass of a loop or branch: TensorFlow lets it read no variable of its own.
    """
    _check_graph(config.get("name") or config.get("queue") or target)
    token = device_token()
    fixed = [tf.stop_gradient(operand) for operand in operands]
    specs = [*results, tf.TensorSpec([], tf.int32)]
    *tensors, moved = device_call(target, [*fixed, token.read_value()], config, specs, has_side_effect=True)
    return tensors, token.assign(moved, read_value=False)


def _check_graph(what: str) -> None:
    graph = tf.compat.v1.get_default_graph()
    while graph is not None:
        if isinstance(graph, _WhileBodyGradFuncGraph | _CondGradFuncGraph):
            raise UnsupportedOperation(
                f"Expected device operations that exchange data with the host in a loop's or branch's body itself. "
                f"Received: {what!r} in the backward pass of a tf.while_loop or tf.cond, taken outside of it. Take the "
                f"gradient inside the body, with a tf.GradientTape around the operation and what reads its result; or "
                f"move the operation before the loop or branch."
            )
        graph = getattr(graph, "outer_graph", None)


def require_trace(what: str, eager_advice: str = VERSION_1) -> None:
    """Raises RuntimeError unless a function is being traced for the engine."""
    if tracing():
        return
    where = "outside of any tf.function" if tf.executing_eagerly() else "in a function that runs elsewhere"
    advice = (
        "in a function given to IPUStrategy.run, or in a tf.function(jit_compile=True) called in the strategy's scope."
    )
    if tf.executing_eagerly():
        advice += f" {eager_advice}"
    in_function = ops.inside_function()
    with ops.init_scope():
        if not tf.executing_eagerly() and not in_function:
            where, advice = "in a tf.Graph", "in the function given to ipu_compiler.compile."
        elif not tf.executing_eagerly():
            where = "in a function, branch or loop of a tf.Graph"
            advice = "outside, with tf.cond or tf.while_loop in the computation, or disable version 2's behavior."
    raise RuntimeError(
        f"Expected {what} inside a tf.function that runs on the IPU. Received: a call {where}. Call it {advice}"
    )
