"""Conditionals and loops: where a condition is known, one branch is traced, as XLA checks shapes in both.

Loops and branches begin in the name scopes that they have in TensorFlow 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2
from tensorflow.python.framework import ops
from tensorflow.python.framework.smart_cond import smart_constant_value

from ipu._internal.compiler.constant_values import known
from ipu._internal.compiler.growing_arrays import lengthened
from ipu._internal.compiler.loop_counters import LoopCounters, while_operation
from ipu._internal.name_scopes import scope_of_control_flow

NO_MAXIMUM = -1
"""The second operand of a While operation without maximum_iterations."""
Branch = Callable[..., Any]


def conditional(
    original: Callable[..., Any], pred: Any, true_fn: Branch, false_fn: Branch, name: str | None = "cond"
) -> Any:
    """Calls only the branch that runs, and returns its leaves as tensors; calls `original` where `pred` is unknown or
    no scalar.
    """
    pred = pred.read_value() if isinstance(pred, tf.Variable) else pred
    constant: Any = None if isinstance(pred, bool) else smart_constant_value(pred)
    if constant is None or np.ndim(constant):
        with scope_of_control_flow(name, "cond") as (name, scoped):
            return original(pred, scoped(true_fn), scoped(false_fn), name=name)
    with tf.name_scope(name or "cond"):
        return tf.nest.map_structure(lambda leaf: _returned(leaf, pred), (true_fn if constant else false_fn)())


def loop(original: Callable[..., Any], cond: Branch, body: Branch, *args: Any, name: str | None, **kwargs: Any) -> Any:
    """`original` with a condition and a body that begin in the loop's scope, with arrays that grow, and with the
    greatest number of iterations, which its gradient needs, if that follows from counters.
    """
    with scope_of_control_flow(name, "while") as (name, scoped):
        if tf.get_static_value(kwargs.get("maximum_iterations")) == 0:
            # XLA has no empty lists for the gradient's values.
            kwargs["maximum_iterations"], cond = 1, _never(cond)
        results = original(scoped(cond), scoped(body), *args, name=name, **kwargs)
    operation = while_operation(next((each for each in tf.nest.flatten(results) if tf.is_tensor(each)), None))
    if operation is not None and tf.get_static_value(operation.inputs[1]) == NO_MAXIMUM:
        count, _ = LoopCounters(operation).most_iterations()
        if count is not None:
            # Not another operand: a tape has kept this one.
            most = attr_value_pb2.AttrValue(tensor=tf.make_tensor_proto(max(count, 1), tf.int32))
            operation.inputs[1].op._set_attr("value", most)
    return lengthened(results)


def capture_of_gradient(original: Callable[..., Any], graph: Any, tensor: tf.Tensor, name: str | None) -> tf.Tensor:
    """_capture_helper of the graph of a loop's or a branch's gradient: sizes and permutations that follow from shapes
    remain constants, as XLA requires. TensorFlow keeps a value for each iteration, unless it is a Const.
    """
    if tensor.graph is not graph._forward_graph or not (tensor.dtype.is_integer or tensor.dtype.is_bool):
        return original(graph, tensor, name)
    captures, key = graph._indirect_captures, ops.tensor_id(tensor)
    if key not in captures and (value := known(tensor)) is not None:
        with graph.as_default(), tf.control_dependencies(None):
            captures[key] = tf.constant(value, tensor.dtype)
    return captures[key] if key in captures else original(graph, tensor, name)


def _never(cond: Branch) -> Branch:
    """The condition of a loop without iterations."""
    return lambda *values: tf.logical_and(cond(*values), False)


def _returned(leaf: Any, pred: Any) -> Any:
    """A leaf as a conditional returns it, `pred` after an operation without results."""
    if leaf is None or isinstance(leaf, tf.TensorArray):
        return leaf
    if isinstance(leaf, tf.Operation):
        with tf.control_dependencies([leaf]):
            return tf.identity(pred)
    return ops.convert_to_tensor_or_composite(leaf)
