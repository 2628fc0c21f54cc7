"""The checks of values that TensorFlow's kernels for the CPU make and XLA does not, by operation.

While a step is compiled to HLO its functions have a custom call beside each such operation (custom_calls.py).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.core.framework.node_def_pb2 import NodeDef
from tensorflow.python.ops.handle_data_util import get_resource_handle_data

from engine.errors import ConfigurationError, InvalidValue
from engine.ir.value_checks import VALUE_CHECK, ValueCheck
from ipu._internal.thread_values import ThreadValue

SUFFIX = "_value_check"
"""Suffix of the names of checks; a number follows."""
VARIABLE = "SOFTWARE_IPU_VALUE_CHECKS"
LEAST, MOST = -(2**63), 2**63 - 1
BY_ROW = "indices{position} = {value} is not in [{low}, {bound})."
BY_COMPONENT = "indices{position} = {value} does not index into the shape: expected [{low}, {bound})."

checking: ThreadValue[bool | None] = ThreadValue(None)
"""Whether the program that is traced is one of Keras, which checks values; False for one that leaves this process."""


class InvalidArgumentError(InvalidValue, tf.errors.InvalidArgumentError):
    """An InvalidValue that is TensorFlow's InvalidArgumentError, too, for programs of TensorFlow's users."""

    def __init__(self, error: InvalidValue) -> None:
        tf.errors.InvalidArgumentError.__init__(self, None, None, str(error))
        self.__dict__.update(vars(error))


class Checked(NamedTuple):
    """A check of an input of an operation."""

    number: int
    check: ValueCheck


def values_are_checked() -> bool:
    """Whether the program that is traced checks values: programs of `keras` (the default), `all` or `none` do.

    Raises ConfigurationError for another value of the environment's variable.
    """
    chosen = os.environ.get(VARIABLE) or "keras"
    if chosen not in ("keras", "all", "none"):
        raise ConfigurationError(f"Expected keras, all or none in {VARIABLE}. Received: {chosen!r}.")
    return bool(checking.value) if chosen == "keras" else chosen == "all" and checking.value is not False


def checks_of(operation: tf.Operation) -> list[Checked]:
    """The checks of an operation's inputs, without those of constants that pass."""
    rule = RULES.get(operation.type)
    return (
        [] if rule is None else [each for each in rule(operation) if not _passes(operation.inputs[each.number], each)]
    )


def check_node(name: str, given: str, operand: tf.Tensor, check: ValueCheck, passes: bool) -> NodeDef:
    """A custom call that checks a tensor, whose name among a function's nodes is `given`.

    If `passes`, it returns its operand, and runs with the operation that reads the result. Otherwise it returns a
    scalar without readers.
    """
    node = NodeDef(name=name, op="XlaCustomCallV2", input=[given])
    node.attr["call_target_name"].s = VALUE_CHECK.encode()
    node.attr["backend_config"].s = check.config().encode()
    node.attr["has_side_effect"].b = True
    node.attr["operand_dtypes"].list.type.append(operand.dtype.as_datatype_enum)
    node.attr["result_dtypes"].list.type.append((operand.dtype if passes else tf.int32).as_datatype_enum)
    node.attr["result_shapes"].list.shape.append((operand.shape if passes else tf.TensorShape([])).as_proto())
    return node


def assertion(texts: list[str]) -> ValueCheck:
    """The check of an assertion's condition, with its texts."""
    said = "".join(f" [{each}]" for each in texts).replace("{", "{{").replace("}", "}}")
    return ValueCheck("range", "Assert", f"assertion failed:{said or ' a condition is false'}.", (1,), (2,))


def texts_of(operation: tf.Operation) -> list[str]:
    """The constant texts among the data of an assertion."""
    data = [tf.get_static_value(each) for each in operation.inputs[1:] if each.dtype == tf.string]
    return [each.item().decode(errors="replace") for each in data if each is not None and each.ndim == 0]


def _passes(tensor: tf.Tensor, checked: Checked) -> bool:
    """Whether a tensor is a constant that passes."""
    from engine.ops.queues import failing_element

    known = tf.get_static_value(tensor)
    return known is not None and failing_element(checked.check, np.asarray(known)) < 0


Rule = Callable[[Any], Iterator[Checked]]
RULES: dict[str, Rule] = {}


def _on(*types: str) -> Callable[[Rule], Rule]:
    def add(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(types, rule))
        return rule

    return add


def _range(
    operation: tf.Operation, number: int, message: str, bounds: list[int | None], lows: list[int] | None = None
) -> Iterator[Checked]:
    """A check of input `number`, unless a bound is not known."""
    known = [each for each in bounds if each is not None]
    if known and len(known) == len(bounds):
        low = tuple(lows or [0] * len(known))
        yield Checked(number, ValueCheck("range", operation.type, message, low, tuple(known)))


def _dimensions(tensor: tf.Tensor) -> list[int | None]:
    """The dimensions of a tensor, or of the variable behind a handle; none if its rank is not known."""
    shape = tensor.shape
    if tensor.dtype == tf.resource:
        data = get_resource_handle_data(tensor)
        if data is None or not data.is_set or not data.shape_and_type:
            return []
        shape = tf.TensorShape(data.shape_and_type[0].shape)
    return [] if shape.rank is None else list(shape.as_list())


@_on("SparseSoftmaxCrossEntropyWithLogits")
def _labels(operation: tf.Operation) -> Iterator[Checked]:
    message = "Received a label value of {value} which is outside the valid range of [{low}, {bound})."
    yield from _range(operation, 1, message, _dimensions(operation.inputs[0])[-1:])


@_on("GatherV2")
def _rows_along_an_axis(operation: tf.Operation) -> Iterator[Checked]:
    axis, dimensions = tf.get_static_value(operation.inputs[2]), _dimensions(operation.inputs[0])
    if axis is not None and dimensions:
        yield from _range(operation, 1, BY_ROW, [dimensions[int(axis)]])


@_on("Gather", "ResourceGather")
def _rows(operation: tf.Operation) -> Iterator[Checked]:
    batch = operation.get_attr("batch_dims") if operation.type == "ResourceGather" else 0
    yield from _range(operation, 1, BY_ROW, _dimensions(operation.inputs[0])[batch : batch + 1])


@_on(*(f"ResourceScatter{each}" for each in ("Add", "Sub", "Mul", "Div", "Min", "Max", "Update")))
def _updated_rows(operation: tf.Operation) -> Iterator[Checked]:
    yield from _range(operation, 1, BY_ROW, _dimensions(operation.inputs[0])[:1])


def _components(operation: tf.Operation, number: int, dimensions: list[int | None]) -> Iterator[Checked]:
    """A check of index vectors, along the last dimension of an input."""
    if any(each.name == "bad_indices_policy" for each in operation.op_def.attr):
        if operation.get_attr("bad_indices_policy") not in (b"", b"DEFAULT", b"ERROR"):
            return
    count = _dimensions(operation.inputs[number])[-1:]
    if count and count[0] is not None:
        yield from _range(operation, number, BY_COMPONENT, dimensions[: count[0]])


@_on("GatherNd", "ResourceGatherNd", "ScatterNdNonAliasingAdd")
@_on(*(f"TensorScatter{each}" for each in ("Update", "Add", "Sub", "Min", "Max")))
@_on(*(f"ResourceScatterNd{each}" for each in ("Update", "Add", "Sub", "Min", "Max")))
def _into_an_array(operation: tf.Operation) -> Iterator[Checked]:
    yield from _components(operation, 1, _dimensions(operation.inputs[0]))


@_on("ScatterNd")
def _into_zeros(operation: tf.Operation) -> Iterator[Checked]:
    shape = tf.get_static_value(operation.inputs[2])
    yield from _components(operation, 0, [] if shape is None else [int(each) for each in shape])


@_on("SparseToDense")
def _sparse(operation: tf.Operation) -> Iterator[Checked]:
    shape = tf.get_static_value(operation.inputs[1])
    if shape is not None and operation.get_attr("validate_indices"):
        yield from _range(operation, 0, BY_COMPONENT, [int(each) for each in shape])


@_on(*(f"UnsortedSegment{each}" for each in ("Sum", "Prod", "Min", "Max")))
def _segments(operation: tf.Operation) -> Iterator[Checked]:
    """A check of an upper bound alone: rows of negative segments are dropped."""
    count = tf.get_static_value(operation.inputs[2])
    if count is not None:
        message = "segment_ids{position} = {value} is out of range [0, {bound})."
        yield from _range(operation, 1, message, [int(count)], [LEAST])


@_on("DynamicPartition")
def _parts(operation: tf.Operation) -> Iterator[Checked]:
    message = "partitions{position} = {value} is not in [0, {bound})."
    yield from _range(operation, 1, message, [operation.get_attr("num_partitions")])


@_on("FloorDiv", "Div", "TruncateDiv", "FloorMod", "Mod", "TruncateMod")
def _divisors(operation: tf.Operation) -> Iterator[Checked]:
    if operation.inputs[1].dtype.is_integer:
        yield Checked(1, ValueCheck("nonzero", operation.type, "Integer division by zero, at {position}."))


@_on("Pow")
def _exponents(operation: tf.Operation) -> Iterator[Checked]:
    if operation.inputs[1].dtype.is_integer:
        message = "Integers to negative integer powers are not allowed: {value} at {position}."
        yield from _range(operation, 1, message, [MOST])


@_on("CheckNumerics", "CheckNumericsV2")
def _finite(operation: tf.Operation) -> Iterator[Checked]:
    said = operation.get_attr("message").decode(errors="replace").replace("{", "{{").replace("}", "}}")
    yield Checked(0, ValueCheck("finite", operation.type, f"{said} : Tensor had {{value}} values, at {{position}}."))


@_on("Assert")
def _condition(operation: tf.Operation) -> Iterator[Checked]:
    yield Checked(0, assertion(texts_of(operation)))


@_on("ReverseSequence")
def _lengths(operation: tf.Operation) -> Iterator[Checked]:
    size = _dimensions(operation.inputs[0])[operation.get_attr("seq_dim")]
    message = "seq_lens{position} = {value} is outside of [0, {bound})."
    yield from _range(operation, 1, message, [None if size is None else size + 1])


@_on("Bincount", "DenseBincount")
def _counted(operation: tf.Operation) -> Iterator[Checked]:
    yield from _range(operation, 0, "Input arr must be non-negative! Received {value} at {position}.", [MOST])


@_on("InvertPermutation")
def _permutation(operation: tf.Operation) -> Iterator[Checked]:
    message = "{value} is not between 0 and {bound}, at {position}."
    yield from _range(operation, 0, message, _dimensions(operation.inputs[0]))


@_on("Slice")
def _begins(operation: tf.Operation) -> Iterator[Checked]:
    sizes, dimensions = tf.get_static_value(operation.inputs[2]), _dimensions(operation.inputs[0])
    if sizes is not None and len(dimensions) == len(sizes):
        bounds = [None if d is None else d - max(int(s), 0) + 1 for d, s in zip(dimensions, sizes, strict=True)]
        yield from _range(operation, 1, "Expected begin{position} in [{low}, {bound}), but got {value}.", bounds)


@_on("StridedSlice", "ResourceStridedSliceAssign")
def _single_elements(operation: tf.Operation) -> Iterator[Checked]:
    """A check of indices of single elements, as ranges are clipped; none where masks move dimensions."""
    dimensions, count = _dimensions(operation.inputs[0]), _dimensions(operation.inputs[1])
    masks = [operation.get_attr(each) for each in ("ellipsis_mask", "new_axis_mask")]
    shrinks, begins = operation.get_attr("shrink_axis_mask"), operation.get_attr("begin_mask")
    if any(masks) or not count or count[0] is None or count[0] > len(dimensions):
        return
    single = [bool(shrinks >> k & 1) and not begins >> k & 1 for k in range(count[0])]
    if any(single):
        found = [size if each else MOST for size, each in zip(dimensions, single, strict=False)]
        lows = [-(size or 0) if each else LEAST for size, each in zip(dimensions, single, strict=False)]
        yield from _range(operation, 1, "slice index {value} of dimension {position} out of bounds.", found, lows)
