"""Operations that TensorFlow converts to slow HLO, or by MLIR in 5 ms each, a hundred times as long as others.

MLIR runs passes, with all of its patterns, over one module for each operation. While a step is
compiled to HLO such operations are custom calls (custom_calls.py), which costly_expansions.py replaces by the HLO that
TensorFlow would have written. Bilinear resizing becomes other HLO, which resize_expansions.py writes; factorizations of
matrices, for which XLA has loops or functions of its own, become the engine's (matrix_expansions.py).
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.core.framework.function_pb2 import FunctionDef
from tensorflow.core.framework.node_def_pb2 import NodeDef

FACTORIZATIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "LogMatrixDeterminant": (("sign", "log_abs_determinant"), ()),
    "Lu": (("lu", "p"), ()),
    "MatrixDeterminant": (("output",), ()),
    "MatrixInverse": (("output",), ("adjoint",)),
    "MatrixSolve": (("output",), ("adjoint",)),
    "Qr": (("q", "r"), ("full_matrices",)),
    "SelfAdjointEigV2": (("e", "v"), ("compute_v",)),
    "Svd": (("s", "u", "v"), ("compute_uv", "full_matrices")),
}
"""Names of each factorization's results and settings, by operation."""
RESULTS = {
    "Abs": "y",
    "BiasAddGrad": "output",
    "Erfc": "y",
    "Exp": "y",
    "IsFinite": "y",
    "Relu": "activations",
    "ReluGrad": "backprops",
    "ResizeBilinear": "resized_images",
    "ResizeBilinearGrad": "output",
    "Rsqrt": "y",
    "Sigmoid": "y",
    "Sign": "y",
    "Sqrt": "y",
    "Tanh": "y",
}
"""The name of each costly operation's result, by operation."""
IN_ALL_FUNCTIONS = FACTORIZATIONS.keys() | {"Erfc"}
"""Operations that are replaced in loops, branches and called functions, too: XLA's HLO of them takes much longer."""
TARGET = "TensorFlow:"
"""Prefix of the targets of custom calls in place of these operations; the operation follows."""
RESIZING = ("ResizeBilinear", "ResizeBilinearGrad")
RESIZED_DTYPES = frozenset({tf.uint8, tf.float16, tf.bfloat16, tf.float32})
FACTORIZED_DTYPES = frozenset({tf.float32, tf.float64})
DTYPES = frozenset({tf.float16, tf.bfloat16, tf.float32, tf.float64})

SIZES = frozenset({"Rank", "Shape", "ShapeN", "Size"})
"""Operations whose results are constants where shapes are known."""


def is_candidate(operation: tf.Operation) -> bool:
    """Whether an operation is costly, and costly_expansions.py has its HLO for these operands."""
    if operation.type in FACTORIZATIONS:
        return _is_factorization(operation)
    if operation.type not in RESULTS:
        return False
    arrays = [*operation.inputs, *operation.outputs]
    # XLA has constants for arrays without elements.
    if not all(each.shape.is_fully_defined() and each.shape.num_elements() for each in arrays):
        return False
    if operation.type in RESIZING:
        # TensorFlow refuses both at once.
        if operation.get_attr("align_corners") and operation.get_attr("half_pixel_centers"):
            return False
        return {operation.inputs[0].dtype, operation.outputs[0].dtype} <= RESIZED_DTYPES
    dtypes = DTYPES - {tf.float64} if operation.type == "Erfc" else DTYPES
    if any(each.dtype not in dtypes for each in operation.inputs):
        return False
    if operation.type == "BiasAddGrad":
        return bool(operation.get_attr("data_format") == b"NHWC")
    return all(each.shape == operation.outputs[0].shape for each in operation.inputs)


def results(kind: str) -> tuple[str, ...]:
    """The names of an operation's results."""
    return FACTORIZATIONS[kind][0] if kind in FACTORIZATIONS else (RESULTS[kind],)


def _is_factorization(operation: tf.Operation) -> bool:
    """Whether the engine has this factorization for these operands."""
    inputs = list(operation.inputs)
    return all(each.dtype in FACTORIZED_DTYPES and each.shape.is_fully_defined() for each in inputs)


def constants(definition: FunctionDef) -> set[str]:
    """The nodes of a function that TensorFlow computes before it converts the others. Nodes come before their users."""
    found: set[str] = set()
    for node in definition.node_def:
        if node.op in SIZES or node.op == "Const":
            found.add(node.name)
        elif node.input and all(each.partition(":")[0] in found for each in node.input):
            found.add(node.name)
    return found


def make_custom_call(node: NodeDef, operation: Any) -> None:
    """Makes a function's node a custom call in place of a graph's operation."""
    node.op = "XlaCustomCallV2"
    names = FACTORIZATIONS[operation.type][1] if operation.type in FACTORIZATIONS else ()
    if operation.type in RESIZING:
        names = ("align_corners", "half_pixel_centers")
    target = ":".join((operation.type, *(str(int(operation.get_attr(each))) for each in names)))
    for attribute in [each for each in node.attr if not each.startswith("_")]:
        del node.attr[attribute]
    node.attr["call_target_name"].s = f"{TARGET}{target}".encode()
    node.attr["backend_config"].s = b""
    node.attr["has_side_effect"].b = False
    node.attr["operand_dtypes"].list.type.extend(each.dtype.as_datatype_enum for each in operation.inputs)
    node.attr["result_dtypes"].list.type.extend(each.dtype.as_datatype_enum for each in operation.outputs)
    node.attr["result_shapes"].list.shape.extend(each.shape.as_proto() for each in operation.outputs)
