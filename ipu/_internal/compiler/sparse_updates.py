"""Updates of rows of a variable by optimizers of TensorFlow 1 and of tf_keras, made of operations that XLA has.

Each has the arguments of TensorFlow's operation. `indices` are different from each other, but in update_named_rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import gen_resource_variable_ops as resources

from ipu._internal.types import TensorLike


def _rows(handle: tf.Tensor, indices: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    return resources.resource_gather(handle, indices, like.dtype)


def _updated(handle: tf.Tensor, indices: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """The new rows, once they are stored."""
    with tf.control_dependencies([resources.resource_scatter_update(handle, indices, rows)]):
        return tf.identity(rows)


def _adagrad(
    original: Any,
    var: tf.Tensor,
    accum: tf.Tensor,
    lr: TensorLike,
    grad: tf.Tensor,
    indices: tf.Tensor,
    **options: Any,
) -> tf.Operation:
    if not options.get("update_slots", True):
        return original(var, accum, lr, grad, indices, **options)
    sums = _updated(accum, indices, _rows(accum, indices, grad) + grad * grad)
    return resources.resource_scatter_sub(var, indices, lr * grad * tf.math.rsqrt(sums))


def _momentum(
    _: Any,
    var: tf.Tensor,
    accum: tf.Tensor,
    lr: TensorLike,
    grad: tf.Tensor,
    indices: tf.Tensor,
    momentum: tf.Tensor,
    **options: Any,
) -> tf.Operation:
    sums = _updated(accum, indices, _rows(accum, indices, grad) * momentum + grad)
    step = grad + sums * momentum if options.get("use_nesterov") else sums
    return resources.resource_scatter_sub(var, indices, lr * step)


def _keras_momentum(
    _: Any,
    var: tf.Tensor,
    accum: tf.Tensor,
    lr: TensorLike,
    grad: tf.Tensor,
    indices: tf.Tensor,
    momentum: tf.Tensor,
    **options: Any,
) -> tf.Operation:
    sums = _updated(accum, indices, _rows(accum, indices, grad) * momentum - lr * grad)
    step = sums * momentum - lr * grad if options.get("use_nesterov") else sums
    return resources.resource_scatter_add(var, indices, step)


def _rms_prop(original: Any, *arguments: Any, mg: tf.Tensor | None = None, **options: Any) -> tf.Operation:
    var, ms, mom, lr, rho, momentum, epsilon, grad, indices = arguments
    squares = _updated(ms, indices, _rows(ms, indices, grad) * rho + grad * grad * (1 - rho))
    if mg is not None:
        squares -= _updated(mg, indices, _rows(mg, indices, grad) * rho + grad * (1 - rho)) ** 2
    step = _rows(mom, indices, grad) * momentum + lr * grad * tf.math.rsqrt(squares + epsilon)
    return resources.resource_scatter_sub(var, indices, _updated(mom, indices, step))


def _centered_rms_prop(original: Any, var: tf.Tensor, mg: tf.Tensor, *rest: Any, **options: Any) -> tf.Operation:
    return _rms_prop(original, var, *rest, mg=mg, **options)


def _adadelta(original: Any, *arguments: Any, **options: Any) -> tf.Operation:
    var, accum, accum_update, lr, rho, epsilon, grad, indices = arguments
    sums = _updated(accum, indices, _rows(accum, indices, grad) * rho + grad * grad * (1 - rho))
    before = _rows(accum_update, indices, grad)
    step = tf.sqrt(before + epsilon) * tf.math.rsqrt(sums + epsilon) * grad
    done = _updated(accum_update, indices, before * rho + step * step * (1 - rho))
    with tf.control_dependencies([done]):
        return resources.resource_scatter_sub(var, indices, lr * step)


def _ftrl(original: Any, *arguments: Any, **options: Any) -> tf.Operation:
    var, accum, linear, grad, indices, lr, l1, l2, lr_power = arguments
    before, weights = _rows(accum, indices, grad), _rows(var, indices, grad)
    sums = _updated(accum, indices, before + grad * grad)
    change = (sums**-lr_power - before**-lr_power) / lr
    shrunk = grad + 2 * options.get("l2_shrinkage", 0) * weights
    line = _updated(linear, indices, _rows(linear, indices, grad) + shrunk - change * weights)
    clipped = tf.clip_by_value(line, -l1, l1) - line
    return resources.resource_scatter_update(var, indices, clipped / (sums**-lr_power / lr + 2 * l2))


def _ftrl_with_shrinkage(original: Any, *arguments: Any, **options: Any) -> tf.Operation:
    *others, l2_shrinkage, lr_power = arguments
    return _ftrl(original, *others, lr_power, l2_shrinkage=l2_shrinkage, **options)


def _proximal(step: tf.Tensor, lr: TensorLike, l1: TensorLike, l2: TensorLike) -> tf.Tensor:
    """The rows nearest to those after a step of gradient descent, with penalties."""
    return tf.sign(step) * tf.maximum(tf.abs(step) - lr * l1, 0) / (1 + lr * l2)


def _proximal_gradient_descent(original: Any, *arguments: Any, **options: Any) -> tf.Operation:
    var, lr, l1, l2, grad, indices = arguments
    rows = _proximal(_rows(var, indices, grad) - lr * grad, lr, l1, l2)
    return resources.resource_scatter_update(var, indices, rows)


def _proximal_adagrad(original: Any, *arguments: Any, **options: Any) -> tf.Operation:
    var, accum, lr, l1, l2, grad, indices = arguments
    rate = lr * tf.math.rsqrt(_updated(accum, indices, _rows(accum, indices, grad) + grad * grad))
    rows = _proximal(_rows(var, indices, grad) - rate * grad, rate, l1, l2)
    return resources.resource_scatter_update(var, indices, rows)


def _adagrad_da(original: Any, *arguments: Any, **options: Any) -> tf.Operation:
    var, sums, squares, grad, indices, lr, l1, l2, global_step = arguments
    step = tf.cast(global_step, grad.dtype)
    summed = _updated(sums, indices, _rows(sums, indices, grad) + grad)
    squared = _updated(squares, indices, _rows(squares, indices, grad) + grad * grad)
    rows = -lr * _proximal(summed, step, l1, 0.0) / (step * lr * l2 + tf.sqrt(squared))
    return resources.resource_scatter_update(var, indices, rows)


def update_named_rows(
    original: Callable[..., tf.Operation], optimizer: Any, grad: tf.Tensor, handle: Any, indices: tf.Tensor
) -> tf.Operation:
    """Optimizer._resource_apply_sparse_duplicate_indices, where the number of indices is known at run time alone.

    TensorFlow's tf.unique needs it. In place of it the table's rows are summed whole, and those that are named read.
    """
    if indices.shape.num_elements() is not None:
        return original(optimizer, grad, handle, indices)
    rows = handle.shape[0]
    is_named = tf.math.unsorted_segment_sum(tf.ones_like(indices, tf.int32), indices, rows) > 0
    named = tf.cast(tf.where(is_named)[:, 0], indices.dtype)
    sums = tf.gather(tf.math.unsorted_segment_sum(grad, indices, rows), named)
    return optimizer._resource_apply_sparse(sums, handle, named)


SPARSE_UPDATES: dict[str, Callable[..., tf.Operation]] = {
    "resource_sparse_apply_adadelta": _adadelta,
    "resource_sparse_apply_adagrad": _adagrad,
    "resource_sparse_apply_adagrad_da": _adagrad_da,
    "resource_sparse_apply_ftrl": _ftrl,
    "resource_sparse_apply_ftrl_v2": _ftrl_with_shrinkage,
    "resource_sparse_apply_proximal_adagrad": _proximal_adagrad,
    "resource_sparse_apply_proximal_gradient_descent": _proximal_gradient_descent,
    "resource_sparse_apply_momentum": _momentum,
    "resource_sparse_apply_rms_prop": _rms_prop,
    "resource_sparse_apply_centered_rms_prop": _centered_rms_prop,
}
"""Updates by the name of TensorFlow's operation; the first argument is that operation."""

_FTRL = ("var", "accum", "linear", "grad", "indices", "lr", "l1", "l2", "lr_power")
_RMS_PROP = ("var", "ms", "mom", "lr", "rho", "momentum", "epsilon", "grad", "indices")


def _named(update: Callable[..., tf.Operation], *positional: str) -> Callable[..., tf.Operation]:
    """An update that takes all arguments by name."""

    def named(original: Any, **arguments: Any) -> tf.Operation:
        first = [arguments.pop(name) for name in positional]
        return update(original, *first, **arguments)

    return named


RAW_SPARSE_UPDATES: dict[str, Callable[..., tf.Operation]] = {
    "ResourceSparseApplyAdadelta": _named(
        *(_adadelta, "var", "accum", "accum_update", "lr", "rho", "epsilon", "grad", "indices")
    ),
    "ResourceSparseApplyFtrl": _named(_ftrl, *_FTRL),
    "ResourceSparseApplyFtrlV2": _named(_ftrl, *_FTRL),
    "ResourceSparseApplyKerasMomentum": _keras_momentum,
    "ResourceSparseApplyRMSProp": _named(_rms_prop, *_RMS_PROP),
    "ResourceSparseApplyCenteredRMSProp": _named(_centered_rms_prop, "var", "mg", *_RMS_PROP[1:]),
}
"""Updates by the name in tf.raw_ops."""
