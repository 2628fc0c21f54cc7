"""Element-wise expressions: Python functions of tensors, which the engine fuses into one loop."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from engine.errors import ConfigurationError
from ipu._internal.types import TensorLike


class Operand:
    """A tensor with the operators of expressions, also the unary plus, which TensorFlow's tensors lack."""

    def __init__(self, tensor: TensorLike) -> None:
        self.tensor = tensor

    def __pos__(self) -> Operand:
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tensor, name)


def _tensor(value: Any) -> Any:
    return value.tensor if isinstance(value, Operand) else value


def _define(name: str) -> None:
    apply = getattr(operator, f"__{name}__")
    setattr(Operand, f"__{name}__", lambda *values: Operand(apply(*map(_tensor, values))))
    if name in BINARY:
        setattr(Operand, f"__r{name}__", lambda b, a: Operand(apply(_tensor(a), _tensor(b))))


BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")
for _name in (*BINARY, "neg", "abs", "invert", "lt", "le", "gt", "ge"):
    _define(_name)
tf.register_tensor_conversion_function(Operand, lambda value, *_, **__: value.tensor)


@tf.autograph.experimental.do_not_convert
def codelet_expression_op(vertex_expression: Callable[..., Any], *args: TensorLike) -> tf.Tensor:
    """Add a custom fused element-wise expression operation to the graph (Python API, 18.14.1).

        def my_custom_op(x, y, z):
            return x * x + y * z

        ipu.custom_ops.codelet_expression_op(my_custom_op, a, b, c)

    The function is called once with tensors, and the engine fuses what it does with them. So it may also use any
    element-wise function of TensorFlow, and gradients are those of its operations.

    Args:
        vertex_expression: a Python function that defines the expression, with +, -, *, abs, ~ and constants.
        args: the tensor inputs, whose shapes broadcast; all are converted to the dtype of the first one.

    Returns:
        The result of the expression, of the dtype of the first input.

    Raises:
        ConfigurationError: no inputs, or a function that does not return one tensor of their shape.
    """
    if not args:
        raise ConfigurationError("Expected inputs of an expression. Received: none. Pass one for each parameter.")
    first = tf.convert_to_tensor(args[0])
    tensors = [first, *(tf.cast(each, first.dtype) for each in args[1:])]
    with tf.name_scope(getattr(vertex_expression, "__name__", "expression").strip("<>")):
        returned = vertex_expression(*map(Operand, tensors))
        result = tf.cast(_tensor(returned), first.dtype)
    shape = tensors[0].shape
    for each in tensors[1:]:
        shape = tf.broadcast_static_shape(shape, each.shape)
    if result.shape.rank and not shape.is_compatible_with(result.shape):
        raise ConfigurationError(
            f"Expected an element-wise expression, with a result {shape}. Received: {result.shape}. Sums over elements "
            f"and products of matrices are operations of their own."
        )
    return result
