"""Operations of a tf.Graph that a program has placed on an IPU, and those for which the compiler has kernels."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.framework import kernels

CONTROL_FLOW = frozenset({"Enter", "Exit", "LoopCond", "Merge", "NextIteration", "Switch"})
"""Operations that loops and branches of TensorFlow 1 are made of, of which the compiler has no kernels."""
VARIABLES = frozenset({"VarHandleOp", "Variable", "VariableV2"})
ON_HOST = VARIABLES | {"Assert", "AssignVariableOp", "CheckNumerics", "Placeholder", "PlaceholderWithDefault"}
ON_HOST |= {"DestroyResourceOp", "VarIsInitializedOp"}
"""Operations that compute nothing, or that a program could not execute before a variable has a value."""
EXACT = frozenset({"Const", "Identity", "IdentityN", "NoOp", "ReadVariableOp", "ReadVariableXlaSplitND", "Snapshot"})
"""Operations whose results are the same anywhere."""
CUSTOM_CALL = "XlaCustomCallV2"
_PLACED = "_ipu_placed"


def note_placed(graph: tf.Graph, moves_all: bool) -> dict[tf.Operation, int]:
    """The ordinals of the operations, also new ones, that were on IPUs when they were created.

    Variables among them are moved to the host, as the runtime knows no IPU; with `moves_all`, all operations are.
    """
    version, count, placed = getattr(graph, _PLACED, (0, 0, dict[tf.Operation, int]()))
    if graph.version == version:
        return placed
    operations = graph.get_operations()
    for operation in operations[count:]:
        device = operation.device.upper()
        found = re.search(r"IPU:(\d+)$", device)
        if found:
            placed[operation] = int(found[1])
            if moves_all or operation.type in VARIABLES:
                operation._set_device("/device:CPU:0")
        elif placed and device.endswith("CPU:0"):
            # Operations that are created beside a moved variable later, such as updates, are on the host, too.
            beside = (_named(graph, name) for name in operation.colocation_groups())
            ordinals = [placed[each] for each in beside if each in placed and each.type in VARIABLES]
            if ordinals:
                placed[operation] = ordinals[0]
    setattr(graph, _PLACED, (graph.version, len(operations), placed))
    return placed


def _named(graph: tf.Graph, group: bytes) -> Any:
    try:
        return graph.get_operation_by_name(group.decode().removeprefix("loc:@"))
    except KeyError:
        return None


def compilable(operation: tf.Operation) -> bool:
    """Whether the compiler has a kernel for an operation, and programs can have its tensors."""
    tensors = (*operation.inputs, *operation.outputs)
    return operation.type not in ON_HOST and _has_kernel(operation.type) and all(t.dtype != tf.string for t in tensors)


def computes(operations: Iterable[tf.Operation]) -> bool:
    """Whether the results of some operations depend on where they are executed: they compute with real numbers."""
    return any(
        operation.type == CUSTOM_CALL
        or (
            operation.type not in EXACT | CONTROL_FLOW
            and any(t.dtype.is_floating or t.dtype.is_complex for t in (*operation.inputs, *operation.outputs))
        )
        for operation in operations
    )


def has_real_results(operation: tf.Operation) -> bool:
    """Whether an operation computes real numbers, or updates variables with some."""
    changed = operation.outputs or operation.inputs
    return operation.type not in ON_HOST | EXACT | CONTROL_FLOW and any(
        t.dtype.is_floating or t.dtype.is_complex for t in changed
    )


@functools.cache
def _has_kernel(type_name: str) -> bool:
    _load_kernels()
    found = kernels.get_registered_kernels_for_op(type_name).kernel
    return any(kernel.device_type == "XLA_CPU_JIT" for kernel in found)


@functools.cache
def _load_kernels() -> None:
    """Compiles a function: the compiler registers its kernels with the first one."""
    with context.eager_mode(), tf.device("/device:CPU:0"):
        compiled = tf.function(lambda x: x + x, jit_compile=True, autograph=False)
        compiled.experimental_get_compiler_ir(tf.TensorSpec([1], tf.float32))(stage="hlo")
