"""Values that are known while TensorFlow traces: constants, and what small operations on shapes make of them."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context, execute

from ipu._internal.compiler.graph_structure import origin
from ipu._internal.types import TensorLike

FOLDED = frozenset(
    "AddV2 Cast ConcatV2 Cumsum ExpandDims Fill FloorDiv FloorMod GatherV2 Identity Max Maximum Min Minimum Mul Pack "
    "Prod Range Reshape Slice Squeeze StridedSlice Sub Sum Tile Transpose Unpack".split()
)
"""Operations of which constants are computed, if their results are small."""
MOST_ELEMENTS = 1 << 14


def known(value: TensorLike) -> Any:
    """The value of a constant, also of one that a function captures, as NumPy's; None for others."""
    value = origin(tf.convert_to_tensor(value))
    if value.dtype == tf.resource:
        return None
    if (found := tf.get_static_value(value)) is not None:
        return found
    return _computed(value) if _is_computed(value) else None


def _is_computed(tensor: tf.Tensor) -> bool:
    """Whether a tensor follows from constants by operations that are folded."""
    pending, seen = [tensor], set[int]()
    while pending:
        each = origin(pending.pop())
        if id(each) in seen or tf.get_static_value(each) is not None:
            continue
        seen.add(id(each))
        count = each.shape.num_elements()
        if count is None or count > MOST_ELEMENTS or each.op.type not in FOLDED:
            return False
        pending += each.op.inputs
    return True


def _computed(tensor: tf.Tensor) -> Any:
    """The value that TensorFlow's kernels compute, operation by operation."""
    results: dict[tf.Operation, Any] = {}

    def value(of: tf.Tensor) -> tf.Tensor:
        of = origin(of)
        if (static := tf.get_static_value(of)) is not None:
            return tf.constant(static, of.dtype)
        if of.op not in results:
            named = [(each.name, of.op.get_attr(each.name)) for each in of.op.op_def.attr]
            flat = [part.as_datatype_enum if isinstance(part, tf.DType) else part for pair in named for part in pair]
            operands = [value(operand) for operand in of.op.inputs]
            results[of.op] = execute.execute(of.op.type, len(of.op.outputs), operands, tuple(flat), context.context())
        return results[of.op][of.value_index]

    with tf.init_scope(), context.eager_mode(), tf.device("/device:CPU:0"):
        return value(tensor).numpy()
