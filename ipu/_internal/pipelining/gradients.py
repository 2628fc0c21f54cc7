"""The gradients of a pipeline: computed per micro-batch, reduced over micro-batches, applied after the last one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import ops

from ipu._internal.accumulators import running_mean_terms
from ipu._internal.compiler.marks import (
    AccumulatorType,
    Marks,
    is_function_of_variables,
    mark_gradient,
    mark_written_once,
)
from ipu._internal.graphs.variables import zeros_variable
from ipu._internal.name_scopes import in_present_scope
from ipu._internal.operators.gradient_capture import captures_seen
from ipu._internal.pipelining.arguments import PipelineArguments
from ipu._internal.pipelining.captures import capturing
from ipu._internal.pipelining.errors import PipelineRuntimeError
from ipu._internal.pipelining.loss_scales import scaled_gradients
from ipu._internal.types import Optimizer, OptimizerOutput, Variable

Pairs = list[tuple[tf.Tensor, Any]]
"""Gradients with their variables."""


def gradients_of(output: OptimizerOutput, tape: tf.GradientTape) -> Pairs:
    """The gradients of one micro-batch's loss.

    `tape` recorded the stages; `output` may have a tape of its own instead. Raises
    PipelineRuntimeError for a loss that depends on no trainable variable.
    """
    tape = tape if output.tape is None else output.tape
    with capturing(output):
        pairs = [(tf.convert_to_tensor(g), v) for g, v in _with_none(output, tape) if g is not None]
    if not pairs:
        raise PipelineRuntimeError(
            "No variables to optimize. Expected a loss that depends on trainable variables used in the stages. "
            "Received: one that depends on none."
        )
    return pairs


def _with_none(output: OptimizerOutput, tape: tf.GradientTape) -> list[tuple[Any, Any]]:
    variables = list(tape.watched_variables())
    is_first = isinstance(output.opt, tf.compat.v1.train.Optimizer)
    if is_first and _overrides_gradients(output):
        named = {"var_list": variables, **output.compute_gradients_kwargs}
        return list(output.opt.compute_gradients(output.loss, *output.compute_gradients_args, **named))
    wanted = output.variables if output.variables is not None else variables
    wanted = output.compute_gradients_kwargs.get("var_list", wanted)
    inner = [getattr(variable, "value", variable) if _is_keras3(variable) else variable for variable in wanted]
    if is_first:
        return list(zip(tape.gradient(output.loss, inner), wanted, strict=True))
    if hasattr(output.opt, "inner_optimizer"):
        _build(output.opt, list(wanted))  # its scale is a variable
    return list(zip(scaled_gradients(output.opt, output.loss, tape, inner), wanted, strict=True))


def apply_marked(output: OptimizerOutput, pairs: Pairs, accumulator_type: AccumulatorType) -> list[tf.Operation]:
    """Lets the optimizer apply marked gradients, in the accumulators' dtype, and marks its other writes.

    The engine reduces marked gradients over micro-batches, and executes operations that depend on marks once.
    """
    _build(output.opt, [variable for _, variable in pairs])
    marked = [
        (
            mark_gradient(Marks(), tf.cast(gradient, accumulator(accumulator_type, gradient, variable)), variable),
            variable,
        )
        for gradient, variable in pairs
    ]
    before = len(tf.compat.v1.get_default_graph().get_operations())
    output.opt.apply_gradients(marked, *output.apply_gradients_args, **output.apply_gradients_kwargs)
    return mark_written_once(tf.compat.v1.get_default_graph().get_operations()[before:])


def accumulator(accumulator_type: AccumulatorType, gradient: tf.Tensor, variable: Variable) -> tf.DType:
    """The dtype in which the gradients of a variable are accumulated."""
    asked = accumulator_type(variable) if is_function_of_variables(accumulator_type) else accumulator_type
    return gradient.dtype if asked is None else tf.as_dtype(asked)


class GradientSums:
    """The gradients of one micro-batch, and their sums, which are variables on the device."""

    def __init__(self, arguments: PipelineArguments, output: OptimizerOutput, pairs: Pairs) -> None:
        self._arguments, self._output, self._pairs = arguments, output, pairs
        asked = arguments.accumulator_type
        self._sums = [zeros_variable(g.shape, accumulator(asked, g, v), "ipu_gradient_sum") for g, v in pairs]

    def accumulate(self, number: tf.Tensor, count: tf.Tensor) -> tf.Operation:
        """Adds the gradients of micro-batch `number`, from 0, of `count`, by the reduction method."""
        added = []
        for (gradient, _), total in zip(self._pairs, self._sums, strict=True):
            gradient = tf.cast(gradient, total.dtype)
            if self._arguments.reduction == "mean":
                added.append(total.assign_add(gradient / tf.cast(count, total.dtype), read_value=False))
            elif self._arguments.reduction == "running_mean":
                so_far, term = running_mean_terms(total.read_value(), gradient, number)
                added.append(total.assign(so_far + term, read_value=False))
            else:
                added.append(total.assign_add(gradient, read_value=False))
        return tf.group(*added)

    def apply(self, is_last: tf.Tensor, captured: Callable[[], dict[str, tf.Tensor]]) -> tf.Operation:
        """Lets the optimizer apply the sums and the captured gradients, and resets the sums to zero, if `is_last`."""
        output = self._output
        variables = [variable for _, variable in self._pairs]
        _build(output.opt, variables)

        @in_present_scope
        def update() -> tf.Operation:
            totals, seen = [tf.identity(total) for total in self._sums], captured()
            with tf.control_dependencies(totals), captures_seen(seen) if seen else contextlib.nullcontext():
                pairs = list(zip(totals, variables, strict=True))
                output.opt.apply_gradients(pairs, *output.apply_gradients_args, **output.apply_gradients_kwargs)
                zeroed = [total.assign(tf.zeros_like(total), read_value=False) for total in self._sums]
            return tf.group(*zeroed)

        return tf.cond(is_last, update, tf.no_op, name="")


def _build(optimizer: Optimizer, variables: list[Any]) -> None:
    """Creates the variables of a Keras optimizer outside of the traced function."""
    if hasattr(optimizer, "build") and not getattr(optimizer, "built", False):
        with ops.init_scope():
            optimizer.build(variables)


def _overrides_gradients(output: OptimizerOutput) -> bool:
    return type(output.opt).compute_gradients is not tf.compat.v1.train.Optimizer.compute_gradients


def _is_keras3(variable: Variable) -> bool:
    return not isinstance(variable, tf.Variable) and hasattr(variable, "value")
