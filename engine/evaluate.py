"""Evaluation of a module by the op definitions alone: the reference that every executor is compared with."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from engine.errors import InternalError
from engine.ir import Module
from engine.ops import DEFINITIONS
from engine.ops.apply import apply
from engine.ops.registry import Value

assert DEFINITIONS


def evaluate(module: Module, arguments: list[np.ndarray]) -> tuple[np.ndarray, ...]:
    """The module's flat results for one array per entry parameter.

    Raises UnsupportedOperation for an op without a definition, InternalError when an argument or a value
    disagrees with its instruction's shape.
    """
    expected = len(module.entry.parameters)
    if len(arguments) != expected:
        raise InternalError(f"Expected {expected} arguments. Received: {len(arguments)}.")
    return tuple(_leaves(apply(module.entry, [np.asarray(argument) for argument in arguments])))


def _leaves(value: Value) -> Iterator[np.ndarray]:
    if isinstance(value, tuple):
        for part in value:
            yield from _leaves(part)
    else:
        yield np.ascontiguousarray(value).reshape(value.shape)
