"""Products and look-ups that loop over slices of an operand, as do their gradients."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from ipu._internal.compiler.device_calls import in_graph
from ipu._internal.compiler.variables import in_symbolic_graph
from ipu._internal.operators.checks import require

DIMENSIONS = ("a_columns", "a_rows_b_columns", "b_rows")
"""The documented names of a product's dimensions m, k and n."""
GRADIENTS = {
    "a_columns": ("a_columns", "a_rows_b_columns"),
    "a_rows_b_columns": ("b_rows", "a_columns"),
    "b_rows": ("a_rows_b_columns", "b_rows"),
}
"""The names that a dimension has in the products dC B' and A' dC, which are the gradients of a product C = A B."""


def serialized_product(a: tf.Tensor, b: tf.Tensor, factor: int, dimension: str) -> tf.Tensor:
    """[..., m, k] times [..., k, n] in `factor` slices along a dimension of DIMENSIONS."""
    require(dimension in DIMENSIONS, f"serialization_dimension to be one of {', '.join(DIMENSIONS)}", repr(dimension))
    shapes = f"shapes {a.shape} and {b.shape}"
    agree = None not in (a.shape.rank, b.shape.rank) and min(a.shape.rank, b.shape.rank) >= 2
    agree = agree and a.shape.as_list()[-1] == b.shape.as_list()[-2]
    outer = _common(a.shape[:-2], b.shape[:-2]) if agree else None
    require(outer is not None, "a [..., m, k] and b [..., k, n] whose outer dimensions broadcast", shapes)
    if outer is not None and outer.is_fully_defined():  # else they are equal
        a, b = _broadcast(a, outer), _broadcast(b, outer)
    (m, k), n = a.shape.as_list()[-2:], b.shape.as_list()[-1]
    size = {"a_columns": m, "a_rows_b_columns": k, "b_rows": n}[dimension]
    if size is None and in_symbolic_graph():
        return tf.matmul(a, b)  # Keras infers shapes; the batch is known when the program is traced
    check_factor(factor, size, dimension)

    @tf.custom_gradient
    def product(a: tf.Tensor, b: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]]:
        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            for_a, for_b = GRADIENTS[dimension]
            return (
                serialized_product(upstream, tf.linalg.matrix_transpose(b), factor, for_a),
                serialized_product(tf.linalg.matrix_transpose(a), upstream, factor, for_b),
            )

        return _in_slices(a, b, factor, dimension), gradient

    return tf.matmul(a, b) if factor == 1 else product(*in_graph([a, b]))


def _common(first: tf.TensorShape, second: tf.TensorShape) -> tf.TensorShape | None:
    """The shape to which both broadcast, as in tf.matmul; None if there is none, or it is not known."""
    if first.is_fully_defined() and second.is_fully_defined():
        try:
            return tf.broadcast_static_shape(first, second)
        except ValueError:
            return None
    return first.merge_with(second) if first.is_compatible_with(second) else None


def _broadcast(x: tf.Tensor, outer: tf.TensorShape) -> tf.Tensor:
    if x.shape[:-2].as_list() == outer.as_list():
        return x
    return tf.broadcast_to(x, tf.concat([outer.as_list(), tf.shape(x)[-2:]], 0))


def _in_slices(a: tf.Tensor, b: tf.Tensor, factor: int, dimension: str) -> tf.Tensor:
    """Computes one product after the other, so that the memory of one is free for the next."""
    left = {"a_columns": -2, "a_rows_b_columns": -1}.get(dimension)
    right = {"a_rows_b_columns": -2, "b_rows": -1}.get(dimension)
    lefts = [a] * factor if left is None else tf.split(a, factor, left)
    rights = [b] * factor if right is None else tf.split(b, factor, right)
    products = [tf.matmul(*pair) for pair in zip(lefts, rights, strict=True)]
    return tf.add_n(products) if left == -1 else tf.concat(products, left or right)


def check_factor(factor: int, size: int | None, dimension: str) -> None:
    """Raises ConfigurationError unless `factor` is a positive divisor of a known size."""
    divides = isinstance(factor, int) and factor >= 1 and size is not None and size % factor == 0
    require(divides, f"serialization_factor to be a divisor of {size}, the size of {dimension}", factor)


def serialized_lookup(table: tf.Tensor, ids: tf.Tensor, factor: int) -> tf.Tensor:
    """Rows of a table [N, D], looked up in `factor` slices; zeros for ids in no slice. The gradient is dense."""
    rows = table.shape.as_list()[0]
    check_factor(factor, rows, "params")
    rows //= factor

    @tf.custom_gradient
    def lookup(table: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            parts = [tf.math.unsorted_segment_sum(upstream, of_slice, rows) for of_slice in positions]
            return tf.concat(parts, 0) if factor > 1 else parts[0]

        # -1 marks ids of other slices: segment sums leave it out.
        positions = [tf.where((ids >= n * rows) & (ids < (n + 1) * rows), ids - n * rows, -1) for n in range(factor)]
        if factor == 1:
            return tf.gather(table, ids), gradient
        found = [
            tf.where(of_slice[..., None] >= 0, tf.gather(part, tf.maximum(of_slice, 0)), tf.zeros([], table.dtype))
            for part, of_slice in zip(tf.split(table, factor), positions, strict=True)
        ]
        return tf.add_n(found), gradient

    return lookup(table)
