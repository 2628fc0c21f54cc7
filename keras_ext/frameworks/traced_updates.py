"""Values and operations that variables' updates share while one application of gradients is traced.

Tracing and converting updates is most of a first step's time, so values that variables share are computed once for each
application and learning rate, and no value is read again that an operation has just stored.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import tensorflow as tf

from ipu._internal.compiler.variables import tracing
from ipu._internal.thread_values import ThreadValue
from keras_ext.types import Tensor

Values = tuple[Any, ...]
Shared = dict[Values, Values]
"""The learning rate, whose id is in the key, and the values that an optimizer computes from it and its numbers."""
_shared: ThreadValue[Shared | None] = ThreadValue(None)


@contextlib.contextmanager
def applying() -> Iterator[None]:
    """Applies gradients once, while the context is open: the number of iterations and the learning rate stay the
    same.
    """
    with _shared.replaced_by({} if tracing() else None):
        yield


def is_served(gradient: Tensor, numbers: Values, *variables: Any) -> bool:
    """Whether an update is traced within `applying`, of a gradient, floats and variables of one dtype."""
    if _shared.value is None or not tf.is_tensor(gradient):
        return False
    one_dtype = all(each.dtype == variables[0].dtype for each in variables)  # which are names or tf.DType
    return one_dtype and all(isinstance(each, float) for each in numbers)


def shared_by(optimizer: Any, dtype: Any, learning_rate: Any, numbers: Values, compute: Callable[[], Values]) -> Values:
    """The results of `compute`, which is called once for equal other arguments in one application and graph.

    A subclass of an optimizer may have rates or numbers for each variable.
    """
    shared = _shared.value
    assert shared is not None
    key = tf.compat.v1.get_default_graph(), id(optimizer), dtype, id(learning_rate), numbers
    if key not in shared:
        shared[key] = (learning_rate, *compute())
    return shared[key][1:]


def total(gradient: Tensor, dtype: Any) -> Tensor:
    """A gradient in a dtype; IndexedSlices become the sums of rows, in a tensor as large as the variable."""
    return tf.convert_to_tensor(tf.cast(gradient, dtype))


def totals(gradient: Tensor, dtype: Any) -> tuple[Tensor, Tensor]:
    """A gradient and its square in a dtype; for IndexedSlices, the sums of rows and the sums of the rows' squares.

    Keras squares each row by itself where a batch names it twice.
    """
    gradient = tf.cast(gradient, dtype)
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient, made("Square", gradient)
    squares = tf.IndexedSlices(made("Square", gradient.values), gradient.indices, gradient.dense_shape)
    return tf.convert_to_tensor(gradient), tf.convert_to_tensor(squares)


def made(kind: str, *operands: Tensor, name: str | None = None) -> Tensor:
    """Creates an operation on operands of one dtype in a third of the time, without TensorFlow's checks."""
    graph = tf.compat.v1.get_default_graph()
    return graph.create_op(kind, operands, [operands[0].dtype], name=name or kind).outputs[0]


add = partial(made, "AddV2", name="add")
multiply = partial(made, "Mul", name="mul")
subtract = partial(made, "Sub", name="sub")
divide = partial(made, "RealDiv", name="truediv")
