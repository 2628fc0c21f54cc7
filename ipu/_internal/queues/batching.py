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
"""For tensors of known shapes these are deterministic and fast, and never fail."""


def is_harmless(dataset: tf.data.Dataset) -> bool:
    """Whether the number of elements taken from the data set at a time has no visible effect.

    From a data set that may fail, wait for something or have side effects, elements are taken one by one: a program
    gets the elements before an error, and each one as soon as it is produced.
    """
    kind, inputs = type(dataset).__name__, dataset._inputs()
    if kind in MAPPING_STEPS:
        function = dataset._map_func.function
        known = _has_known_shapes(inputs[0])
        if not known or any(operation.type not in HARMLESS_OPERATIONS for operation in function.graph.get_operations()):
            return False
    elif kind not in (HARMLESS_STEPS if inputs else HARMLESS_SOURCES):
        return False
    return all(is_harmless(source) for source in inputs)


def _has_known_shapes(dataset: tf.data.Dataset) -> bool:
    leaves = tf.nest.flatten(dataset.element_spec)
    return all(isinstance(leaf, tf.TensorSpec) and leaf.shape.is_fully_defined() for leaf in leaves)
