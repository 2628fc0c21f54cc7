"""Marks each gradient that enters an optimizer, in the trace of a step that will be cut there."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeGuard

import numpy as np
import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops
from tensorflow.python.framework.auto_control_deps_utils import get_read_write_resource_inputs
from tensorflow.python.ops import gen_resource_variable_ops
from tensorflow.python.ops.resource_variable_ops import get_eager_safe_handle_data

from engine.errors import ConfigurationError
from engine.ir.device_operations import PIPELINE_ITERATION, UPDATED_ONCE
from engine.ir.shape import ELEMENT_TYPES
from engine.partition.marks import GRADIENT, mark_config
from ipu._internal.compiler.variables import IPUVariable, used_with
from ipu._internal.thread_values import ThreadValue
from ipu._internal.types import TensorLike, Variable

AccumulatorType: TypeAlias = tf.DType | Callable[[Any], tf.DType | None] | None
"""The dtype in which gradients are accumulated: one for all, or for each variable; None is the gradient's own."""


@dataclass
class Marks:
    """State of one trace, with TensorFlow variables by id.

    `updated_once` are those that optimizers update, `random` the states from which random numbers are drawn.
    """

    accumulator_type: AccumulatorType = None
    updated_once: dict[int, Any] = field(default_factory=dict)
    random: dict[int, Any] = field(default_factory=dict)
    inside: bool = False


_marks: ThreadValue[Any] = ThreadValue(None)


def marking(accumulator_type: AccumulatorType = None) -> contextlib.AbstractContextManager[Marks]:
    """Lets gradients be marked in steps that are traced while the context is open."""
    return _marks.replaced_by(Marks(accumulator_type))


def in_marked_step() -> bool:
    """Whether a step is being traced that will be cut."""
    return _marks.value is not None


def is_optimizing() -> bool:
    """Whether an optimizer applies gradients in a step that will be cut."""
    return _marks.value is not None and _marks.value.inside


@contextlib.contextmanager
def optimizing() -> Iterator[Marks | None]:
    """Notes that an optimizer applies gradients, while the context is open, and yields the marks that it sets.

    Yields None where it sets none: outside `marking`, and for an optimizer inside another one. The variables written by
    operations created meanwhile are updated once.
    """
    marks = _marks.value
    if marks is None or marks.inside:
        yield None
        return
    graph = tf.compat.v1.get_default_graph()
    before = len(graph.get_operations())
    marks.inside = True
    try:
        yield marks
    finally:
        marks.inside = False
    note_updated_once(written_variables(graph, graph.get_operations()[before:]))


def mark_gradient(marks: Marks, gradient: TensorLike, variable: Variable) -> Any:
    """A gradient in its accumulation dtype, marked; None if there is none.

    `variable` is its Keras variable. Raises ConfigurationError for an accumulation dtype that is no float.
    """
    if gradient is None:
        return None
    gradient = tf.convert_to_tensor(gradient)
    wanted = marks.accumulator_type
    if is_function_of_variables(wanted):
        wanted = wanted(variable)
    if wanted is not None:
        accumulator_element_type(wanted)
        gradient = tf.cast(gradient, wanted)
    return _passed(GRADIENT, gradient, mark_config(getattr(variable, "path", None) or variable.name, None))


def as_of_variable(gradient: TensorLike, variable: Variable) -> Any:
    """A gradient in its variable's dtype, as stock optimizers take it, where accumulators have another one."""
    marks = _marks.value
    if marks is None or marks.accumulator_type is None or not tf.is_tensor(gradient):
        return gradient
    return tf.cast(gradient, variable.dtype)


def mark_total(tensor: tf.Tensor) -> tf.Tensor:
    """The sum of a tensor over the micro-batches of an update, valid after the last one."""
    return _passed(GRADIENT, tensor, mark_config(tensor.name, None, total=True))


def mark_pipeline_iteration(iteration: tf.Tensor, config: str) -> tf.Tensor:
    """Marks the iteration number of a loop that is to become a pipeline."""
    return _passed(PIPELINE_ITERATION, iteration, config)


def mark_updated_once(value: tf.Tensor) -> tf.Tensor:
    """The new value of a variable that changes once in each execution of a pipeline."""
    return _passed(UPDATED_ONCE, value, "")


def mark_written_once(operations: Iterable[tf.Operation]) -> list[tf.Operation]:
    """Marks the new values of the variables that `operations` write; returns the operations that store them."""
    writing = [operation for operation in operations if operation.type != "ReadVariableOp"]
    written = {each.ref(): each for operation in writing for each in operation.inputs if each.dtype == tf.resource}
    with tf.control_dependencies(list(operations)):
        return [_rewritten(handle) for handle in written.values()]


def _rewritten(handle: tf.Tensor) -> tf.Operation:
    (data,) = get_eager_safe_handle_data(handle).shape_and_type
    value = gen_resource_variable_ops.read_variable_op(handle, tf.as_dtype(data.dtype))
    return gen_resource_variable_ops.assign_variable_op(handle, mark_updated_once(value))


def _passed(target: str, tensor: tf.Tensor, config: str) -> tf.Tensor:
    """The tensor as the result of a custom call that the engine removes."""
    (same,) = gen_xla_ops.xla_custom_call_v2([tensor], target, config, False, [tensor.dtype], [tensor.shape])
    same.set_shape(tensor.shape)
    return same


def is_function_of_variables(accumulator_type: object) -> TypeGuard[Callable[[Any], tf.DType | None]]:
    """Whether the accumulation dtype is a function of the variable."""
    return callable(accumulator_type) and not isinstance(accumulator_type, type | tf.DType)


def check_accumulator_type(dtype: object) -> None:
    """Raises ConfigurationError for anything but None, a floating-point type and a function of the variable."""
    if dtype is not None and not is_function_of_variables(dtype):
        accumulator_element_type(dtype)


def accumulator_element_type(dtype: object) -> str:
    """HLO's name of an accumulation dtype; raises ConfigurationError for anything but floating-point types."""
    try:
        kind = tf.as_dtype(dtype)
    except TypeError:
        kind = tf.string
    if not kind.is_floating or np.dtype(kind.as_numpy_dtype) not in ELEMENT_TYPES:
        raise ConfigurationError(
            f"Expected the dtype of accumulators to be None, a floating-point type or a function of a variable that "
            f"returns one. Received: {dtype!r}. Nearest: tf.float32."
        )
    return ELEMENT_TYPES[np.dtype(kind.as_numpy_dtype)]


def written_variables(graph: tf.Graph, operations: Iterable[tf.Operation]) -> list[Any]:
    """The TensorFlow variables that operations of a graph write, also in their branches and loops."""
    inputs = {id(t) for operation in operations for t in get_read_write_resource_inputs(operation)[1]}
    handles = {id(outer) for outer, inner in getattr(graph, "captures", ()) if id(inner) in inputs}
    return [*used_with(handles), *(v for v in getattr(graph, "variables", ()) if id(_host_handle(v)) in handles)]


def _host_handle(variable: Variable) -> Any:
    return None if isinstance(variable, IPUVariable) else getattr(variable, "_handle", None)


def note_updated_once(variables: Iterable[Any]) -> None:
    """Notes TensorFlow variables that an optimizer updates, within `marking`."""
    if _marks.value is not None:
        # Mixed precision wraps a variable in a casting one, as its `_variable`.
        inner = [getattr(variable, "_variable", variable) for variable in variables]
        _marks.value.updated_once.update({id(variable): variable for variable in inner})


def note_random(variable: Any) -> None:
    """Notes TensorFlow's variable of a random generator that draws, within `marking`."""
    if _marks.value is not None:
        _marks.value.random[id(variable)] = variable
