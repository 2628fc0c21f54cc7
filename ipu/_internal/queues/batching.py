"""Data sets whose elements tf.data may batch: those that never fail or wait, and have no side effects."""

from __future__ import annotations

import tensorflow as tf

HARMLESS_SOURCES = frozenset({"_TensorDataset", "_TensorSliceDataset", "_RangeDataset", "_RandomDataset"})
HARMLESS_STEPS = frozenset(
    {"_BatchDataset", "_ParallelBatchDataset", "_ConcatenateDataset", "_OptionsDataset", "_PrefetchDataset"}
    | {"_RepeatDataset", "_ShardDataset", "_ShuffleDataset", "_SkipDataset", "_TakeDataset", "_ZipDataset"}
)
MAPPING_STEPS = frozenset({"_MapDataset", "_ParallelMapDataset"})
HARMLESS_OPERATIONS = frozenset(
    {"Abs", "Add", "AddV2", "Cast", "Const", "Div", "Equal", "Exp", "ExpandDims", "Greater", "GreaterEqual", "Identity"}
    | {"Less", "LessEqual", "Log", "LogicalAnd", "LogicalNot", "LogicalOr", "Maximum", "Mean", "Minimum", "Mul", "Neg"}
    | {"NoOp", "NotEqual", "OneHot", "Pack", "Placeholder", "RealDiv", "Rsqrt", "SelectV2", "Sigmoid", "Sqrt", "Square"}
    | {"Squeeze", "Sub", "Sum", "Tanh", "Transpose"}
)
"""Operations that are deterministic and fast, and never fail, for tensors of known shapes."""
OF_ANY_SIZES = frozenset(
    {"Abs", "Cast", "Const", "Exp", "ExpandDims", "Identity", "Log", "LogicalNot", "Mean", "Neg", "NoOp", "OneHot"}
    | {"Placeholder", "Rsqrt", "Shape", "Sigmoid", "Sqrt", "Square", "Sum", "Tanh"}
)
"""Harmless operations that never fail for tensors of known ranks."""
OF_ONE_SIZE = frozenset(
    {"Add", "AddV2", "Div", "Equal", "Greater", "GreaterEqual", "Less", "LessEqual", "LogicalAnd", "LogicalOr"}
    | {"Maximum", "Minimum", "Mul", "NotEqual", "RealDiv", "Sub"}
)
"""Harmless operations that never fail for a tensor of known rank and scalars."""


OTHER_STEPS = frozenset({"CacheDataset", "_FilterDataset"})
OTHER_OPERATIONS = frozenset(
    {"RandomStandardNormal", "RandomUniform", "RandomUniformInt", "Reshape", "ReverseV2", "Shape", "StridedSlice"}
    | {"StatelessRandomGetKeyCounter", "StatelessRandomNormalV2", "StatelessRandomUniformV2", "TruncatedNormal"}
)
"""Operations whose effects can be noticed, though they never fail for tensors of known shapes."""


def is_harmless(dataset: tf.data.Dataset) -> bool:
    """Whether the number of elements taken from the data set at a time has no visible effect.

    From a data set that may fail, wait for something or have side effects, elements are taken one by one: a program
    gets the elements before an error, and each one as soon as it is produced.
    """
    kind, inputs = type(dataset).__name__, dataset._inputs()
    if kind in MAPPING_STEPS:
        operations = dataset._map_func.function.graph.get_operations()
        if not _has_known_shapes(inputs[0]) or any(each.type not in HARMLESS_OPERATIONS for each in operations):
            return False
    elif kind not in (HARMLESS_STEPS if inputs else HARMLESS_SOURCES):
        return False
    return all(is_harmless(source) for source in inputs)


def never_fails(dataset: tf.data.Dataset) -> bool:
    """Whether no element of the data set can be an error, which would replace the elements taken at the same time."""
    kind, inputs = type(dataset).__name__, dataset._inputs()
    function = getattr(dataset, "_map_func", None) or getattr(dataset, "_predicate", None)
    if function is not None and kind in MAPPING_STEPS | OTHER_STEPS:
        if not all(map(_never_fails, function.function.graph.get_operations())):
            return False
    elif kind not in (HARMLESS_STEPS | OTHER_STEPS if inputs else HARMLESS_SOURCES):
        return False
    return all(never_fails(source) for source in inputs)


def _has_known_shapes(dataset: tf.data.Dataset) -> bool:
    leaves = tf.nest.flatten(dataset.element_spec)
    return all(isinstance(leaf, tf.TensorSpec) and leaf.shape.is_fully_defined() for leaf in leaves)


def _never_fails(operation: tf.Operation) -> bool:
    if operation.type not in HARMLESS_OPERATIONS | OTHER_OPERATIONS:
        return False
    shapes = [tensor.shape for tensor in (*operation.inputs, *operation.outputs)]
    if all(shape.is_fully_defined() for shape in shapes):
        return True
    if any(shape.rank is None for shape in shapes):
        return False
    scalars = sum(tensor.shape.rank == 0 for tensor in operation.inputs)
    return operation.type in OF_ANY_SIZES or (operation.type in OF_ONE_SIZE and scalars >= len(operation.inputs) - 1)
