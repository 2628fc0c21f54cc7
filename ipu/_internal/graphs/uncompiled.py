"""Operations on an IPU of a tf.Graph that no program contains: they are executed on the CPU, and told of once."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ipu._internal.graphs.sessions import ATTRIBUTE, reached

_PLACED, _TOLD = "_ipu_uncompiled", "_ipu_uncompiled_told"
HARMLESS = frozenset({"Assert", "Const", "EagerPyFunc", "Identity", "IdentityN", "NoOp", "PyFunc", "ReadVariableOp"})
"""Operations that compute nothing, or that are on the host in any case."""
logger = logging.getLogger("ipu")


def note_uncompiled(graph: tf.Graph, operation: tf.Operation) -> None:
    """Notes an operation that the program has placed on an IPU."""
    numbers = any(each.dtype.is_floating for each in operation.outputs)
    if numbers and operation.type not in HARMLESS and "Placeholder" not in operation.type:
        placed: set[str] = getattr(graph, _PLACED, set())
        placed.add(operation.name)
        setattr(graph, _PLACED, placed)


def tell_uncompiled(graph: tf.Graph, fetches: Sequence[Any]) -> None:
    """Warns, once for each operation, of those that these tensors depend on and no program contains."""
    placed: set[str] = getattr(graph, _PLACED, set())
    told: set[Any] = getattr(graph, _TOLD, set())
    key = tuple(map(id, fetches))
    if not placed or key in told:
        return
    told.add(key)
    setattr(graph, _TOLD, told)
    programs = getattr(graph, ATTRIBUTE, None)
    compiled = programs.operations if programs is not None else set()
    roots = [tensor.op for tensor in fetches if tensor.op not in compiled]
    found = sorted(each.name for each in reached(roots) if each.name in placed and each not in compiled)
    if new := [name for name in found if name not in told]:
        told.update(new)
        logger.warning(
            "Operations on an IPU outside of ipu_compiler.compile are executed on the CPU, without stochastic rounding "
            "and floating-point exceptions: %s%s. Put them into the function that is compiled.",
            ", ".join(new[:5]),
            f" and {len(new) - 5} others" if len(new) > 5 else "",
        )
