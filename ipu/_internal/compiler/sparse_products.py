"""Products of a sparse and a dense matrix, made of operations that XLA has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from ipu._internal.types import TensorLike


def sparse_by_dense(
    original: Callable[..., Any],
    a_indices: TensorLike,
    a_values: TensorLike,
    a_shape: TensorLike,
    b: TensorLike,
    adjoint_a: bool = False,
    adjoint_b: bool = False,
    name: str | None = None,
) -> Any:
    """SparseTensorDenseMatMul: a [n, m] with `a_values` at `a_indices` [count, 2], by b [m, k], is [n, k].

    `original` where a's shape is not known. Raises ValueError for known indices outside of it.
    """
    shape = tf.get_static_value(a_shape)
    if shape is None:
        return original(a_indices, a_values, a_shape, b, adjoint_a=adjoint_a, adjoint_b=adjoint_b, name=name)
    with tf.name_scope(name or "SparseTensorDenseMatMul"):
        indices, values, dense = (tf.convert_to_tensor(each) for each in (a_indices, a_values, b))
        _check(tf.get_static_value(indices), shape)
        rows, columns = indices[:, 0], indices[:, 1]
        if adjoint_a:
            rows, columns, values, shape = columns, rows, tf.math.conj(values), shape[::-1]
        if adjoint_b:
            dense = tf.linalg.adjoint(dense)
        if dense.shape.as_list()[0] != shape[1]:
            raise ValueError(
                f"Expected a sparse matrix with as many columns as the dense one has rows, {dense.shape[0]}. "
                f"Received: one of shape {tuple(int(each) for each in shape)}. Transpose one of them."
            )
        products = values[:, None] * tf.gather(dense, columns)
        return tf.math.unsorted_segment_sum(products, rows, int(shape[0]))


def _check(indices: np.ndarray | None, shape: np.ndarray) -> None:
    if indices is None or ((indices >= 0) & (indices < shape)).all():
        return
    wrong = indices[((indices < 0) | (indices >= shape)).any(axis=1)][0]
    raise ValueError(
        f"Expected indices of a sparse matrix of shape {tuple(int(each) for each in shape)}. "
        f"Received: {tuple(int(each) for each in wrong)}."
    )
