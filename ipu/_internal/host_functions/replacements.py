"""Replaces TensorFlow's operations that run Python or print, or that XLA lacks, in functions traced for the engine."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import tensorflow as tf
from tensorflow._api.v2 import raw_ops
from tensorflow._api.v2.compat.v1 import image
from tensorflow._api.v2.compat.v2 import raw_ops as keras_raw_ops
from tensorflow.python.framework import ops
from tensorflow.python.ops import (
    array_ops,
    cond_v2,
    ctc_ops,
    data_flow_ops,
    embedding_ops,
    gen_array_ops,
    gen_candidate_sampling_ops,
    gen_data_flow_ops,
    gen_functional_ops,
    gen_image_ops,
    gen_list_ops,
    gen_logging_ops,
    gen_math_ops,
    gen_nn_ops,
    gen_ragged_conversion_ops,
    gen_resource_variable_ops,
    gen_sparse_ops,
    gen_string_ops,
    gen_training_ops,
    math_ops,
    metrics_impl,
    script_ops,
    while_v2,
)
from tensorflow.python.training import optimizer

from ipu._internal.compiler.candidate_sampling import SAMPLERS
from ipu._internal.compiler.control_flow import capture_of_gradient, conditional, loop
from ipu._internal.compiler.ctc import loss_of_sparse_labels
from ipu._internal.compiler.gradient_functions import symbolic_gradient
from ipu._internal.compiler.growing_arrays import scatter, set_item, stack
from ipu._internal.compiler.left_out_summaries import SUMMARIES, summary
from ipu._internal.compiler.matrix_resizing import area, bicubic
from ipu._internal.compiler.nearest_resizing import nearest_neighbor, nearest_neighbor_gradient
from ipu._internal.compiler.ragged_tensors import to_dense
from ipu._internal.compiler.segments import GATHERED_SEGMENTS, SEGMENTS, WIDENED, bin_counts, histogram
from ipu._internal.compiler.set_metrics import SET_METRICS
from ipu._internal.compiler.sparse_lookups import safe_sparse_lookup, sparse_lookup
from ipu._internal.compiler.sparse_products import sparse_by_dense
from ipu._internal.compiler.sparse_tensors import SPARSE_OPERATIONS, times_dense
from ipu._internal.compiler.sparse_updates import RAW_SPARSE_UPDATES, SPARSE_UPDATES, update_named_rows
from ipu._internal.compiler.stitches import stitched
from ipu._internal.compiler.unequal_arrays import concatenate, get_item
from ipu._internal.compiler.variables import in_symbolic_graph, tracing
from ipu._internal.compiler.windows import crop_and_resize, dilation2d, max_pool_with_argmax
from ipu._internal.function_code import wraps
from ipu._internal.host_functions.calls import declare_shape
from ipu._internal.host_functions.outside import is_outside
from ipu._internal.host_functions.printing import formatted, passed_on, printed
from ipu._internal.host_functions.python_functions import python_function


def replace_host_operations() -> None:
    """Installs the replacements, once; outside of traces all operations are TensorFlow's own."""
    _replace(script_ops, "_internal_py_func", _py_func)
    _replace(gen_logging_ops, "print_v2", lambda _, *args, **kwargs: printed(*args, **kwargs))
    _replace(gen_logging_ops, "_print", passed_on)
    _replace(gen_string_ops, "string_format", formatted)
    _replace(array_ops, "ensure_shape", _ensure_shape)
    _replace(gen_image_ops, "crop_and_resize", crop_and_resize)
    _replace(gen_image_ops, "resize_area", area)
    _replace(image, "resize_area", area)  # the only public name that is the generated function itself
    _replace(gen_image_ops, "resize_bicubic", bicubic)
    _replace(gen_image_ops, "resize_nearest_neighbor", nearest_neighbor)
    _replace(gen_image_ops, "resize_nearest_neighbor_grad", nearest_neighbor_gradient)
    _replace(gen_sparse_ops, "sparse_tensor_dense_mat_mul", sparse_by_dense)
    _replace(tf.SparseTensor, "__mul__", times_dense)
    _replace(gen_resource_variable_ops, "resource_gather_nd", _gather_nd)
    _replace(cond_v2, "cond_v2", conditional)
    _replace(while_v2, "while_loop", loop)
    _replace(while_v2._WhileBodyGradFuncGraph, "_capture_helper", capture_of_gradient)
    _replace(cond_v2._CondGradFuncGraph, "_capture_helper", capture_of_gradient)
    _replace(gen_functional_ops, "symbolic_gradient", symbolic_gradient)
    _replace(gen_list_ops, "tensor_list_concat_v2", concatenate)
    _replace(gen_list_ops, "tensor_list_get_item", get_item)
    _replace(gen_list_ops, "tensor_list_scatter_into_existing_list", scatter)
    _replace(gen_list_ops, "tensor_list_set_item", set_item)
    _replace(gen_list_ops, "tensor_list_stack", stack)
    _replace(gen_array_ops, "parallel_concat", _parallel_concat)
    _replace(gen_array_ops, "unique_with_counts", _unique_with_counts)
    _replace(gen_ragged_conversion_ops, "ragged_tensor_to_tensor", to_dense)
    _replace(gen_math_ops, "arg_max", partial(_among_numbers, tf.greater))
    _replace(gen_math_ops, "arg_min", partial(_among_numbers, tf.less))
    _replace(gen_math_ops, "euclidean_norm", _euclidean_norm)
    _replace(gen_nn_ops, "dilation2d", dilation2d)
    _replace(gen_nn_ops, "in_top_kv2", _in_top_k)
    _replace(gen_nn_ops, "max_pool_with_argmax", max_pool_with_argmax)
    _replace(gen_math_ops, "_histogram_fixed_width", histogram)
    _replace(gen_math_ops, "dense_bincount", bin_counts)
    _replace(ctc_ops, "_ctc_loss_impl", loss_of_sparse_labels)
    _replace(ctc_ops, "_generate_defun_backend", _without_function)
    _replace(optimizer.Optimizer, "_get_non_slot_variable", _non_slot_variable)
    _replace(optimizer.Optimizer, "_resource_apply_sparse_duplicate_indices", update_named_rows)
    for name in SUMMARIES.values():
        _replace(gen_logging_ops, name, summary)
    for module in (embedding_ops, tf.compat.v1.nn):
        _replace(module, "embedding_lookup_sparse", sparse_lookup)
        _replace(module, "safe_embedding_lookup_sparse", safe_sparse_lookup)
    for module in (gen_data_flow_ops, data_flow_ops, tf, tf.compat.v1, tf.compat.v2):
        _replace(module, "dynamic_stitch", stitched)
    for module in (gen_data_flow_ops, data_flow_ops):
        _replace(module, "parallel_dynamic_stitch", stitched)
    for name, count in SET_METRICS.items():
        _replace(metrics_impl, name, count)
    for name, operation in SPARSE_OPERATIONS.items():
        _replace(gen_sparse_ops, name, operation)
    for name, reduction in SEGMENTS.items():
        for module in (gen_math_ops, math_ops, tf.math, tf.compat.v1, tf.compat.v1.math, tf.compat.v2.math):
            _replace(module, name, reduction)
    for name, reduction in GATHERED_SEGMENTS.items():
        _replace(gen_math_ops, name, reduction)
    for name, sampler in SAMPLERS.items():
        _replace(gen_candidate_sampling_ops, name, sampler)
    for name, update in SPARSE_UPDATES.items():
        _replace(gen_training_ops, name, update)
    for name, update in RAW_SPARSE_UPDATES.items():
        _replace(raw_ops, name, update)
        _replace(keras_raw_ops, name, update)


def _replace(module: ModuleType | type, name: str, replacement: Callable[..., Any]) -> None:
    original = getattr(module, name)
    if hasattr(original, "__wrapped__") and original.__module__ == __name__:
        return

    @wraps(original)
    def chosen(*args: Any, **kwargs: Any) -> Any:
        if tracing() and ops.inside_function() and not is_outside() and not in_symbolic_graph():
            return replacement(original, *args, **kwargs)
        return original(*args, **kwargs)

    chosen.__module__ = __name__
    setattr(module, name, chosen)


def _py_func(
    _: Callable[..., Any],
    func: Callable[..., Any],
    inp: Any,
    Tout: Any,
    stateful: bool | None = None,
    use_eager_py_func: bool = False,
    is_grad_func: bool = False,
    name: str | None = None,
) -> Any:
    return python_function(func, inp, Tout, use_eager_py_func, name)


def _ensure_shape(original: Callable[..., Any], input: Any, shape: Any, name: str | None = None) -> Any:
    declare_shape(input, shape)
    return original(input, shape, name=name)


def _gather_nd(_: Callable[..., Any], resource: Any, indices: Any, dtype: Any, name: str | None = None) -> Any:
    """tf.gather_nd of a variable's value: XLA has the operation for tensors alone."""
    return gen_array_ops.gather_nd(gen_resource_variable_ops.read_variable_op(resource, dtype), indices, name=name)


def _without_function(original: Callable[..., Any], name: str, device: str, func: Callable[..., Any]) -> Any:
    """The function of CTC losses for the CPU itself: as a tf.function it would not know the shape of sparse labels."""
    return func if device == "CPU" else original(name, device, func)


def _non_slot_variable(original: Callable[..., Any], owner: Any, name: str, graph: Any = None) -> Any:
    """A variable of an optimizer, which is in a graph around that of the function where the optimizer asks for it."""
    found = original(owner, name, graph)
    while found is None and graph is not None:
        graph = getattr(graph, "outer_graph", None)
        found = original(owner, name, graph)
    return found


def _among_numbers(
    is_better: Callable[..., Any],
    original: Callable[..., Any],
    input: Any,
    dimension: Any,
    output_type: tf.DType = tf.int64,
    name: str | None = None,
) -> Any:
    """tf.argmax and argmin as TensorFlow's kernels, which never choose NaN; with XLA it depends on NaN's position."""
    input = tf.convert_to_tensor(input)
    if input.dtype.is_floating:
        worst = input.dtype.min if is_better is tf.greater else input.dtype.max
        worst = tf.constant(worst, input.dtype)
        input = tf.where(is_better(input, worst), input, worst)
    return original(input, dimension, output_type, name=name)


def _euclidean_norm(_: Any, input: Any, axis: Any, keep_dims: bool = False, name: str | None = None) -> Any:
    """tf.math.reduce_euclidean_norm, with sums of 16-bit floats in float32."""
    input = tf.convert_to_tensor(input)
    with tf.name_scope(name or "EuclideanNorm"):
        wide = tf.cast(input, tf.float32) if input.dtype in WIDENED else input
        squares = tf.reduce_sum(wide * tf.math.conj(wide), axis, keep_dims)
        return tf.cast(tf.sqrt(squares), input.dtype)


def _in_top_k(original: Callable[..., Any], predictions: Any, targets: Any, k: Any, name: str | None = None) -> Any:
    """tf.math.in_top_k as TensorFlow's kernel: False in rows with NaN or infinities, and for a target of no class."""
    predictions, targets = tf.convert_to_tensor(predictions), tf.convert_to_tensor(targets)
    classes = tf.shape(predictions, targets.dtype)[1]
    known = (targets >= 0) & (targets < classes) & tf.reduce_all(tf.math.is_finite(predictions), axis=1)
    return tf.logical_and(original(predictions, targets, k, name=name), known)


def _parallel_concat(_: Any, values: Any, shape: Any, name: str | None = None) -> Any:
    """The operation of tf.parallel_stack."""
    return tf.concat(list(values), 0, name=name or "ParallelConcat")


def _unique_with_counts(
    original: Callable[..., Any], x: Any, out_idx: tf.DType = tf.int32, name: str | None = None
) -> Any:
    """tf.unique, and how often each of its values occurs; as many as tf.unique has."""
    x = tf.convert_to_tensor(x)
    if x.shape.num_elements() is None:
        return original(x, out_idx, name)
    with tf.name_scope(name or "UniqueWithCounts"):
        found, places = tf.unique(x, out_idx)
        counts = tf.math.unsorted_segment_sum(tf.ones_like(places), places, x.shape[0])
        return found, places, counts[: tf.size(found)]
