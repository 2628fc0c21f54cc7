"""Definitions of custom calls: infeeds and outfeeds, with rows of queues that are bound, host functions, vertices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol, runtime_checkable

import numpy as np

from engine.errors import ConfigurationError, UnsupportedOperation
from engine.host_functions import bound_function
from engine.ir import Instruction, Shape
from engine.ir.device_operations import INFEED, is_first_of_equal, is_host_function, is_queue, is_vertex, queue_of
from engine.ir.factorizations import is_factorization
from engine.ir.interpolation import is_interpolation
from engine.ir.printer import print_instruction
from engine.ir.value_checks import ValueCheck, invalid_value, is_value_check
from engine.ops.factorizations import factorized
from engine.ops.interpolation import interpolated
from engine.ops.registry import Value, definition
from engine.ops.vertices import run_vertices


@runtime_checkable
class InfeedRows(Protocol):
    """Source of an infeed's rows."""

    def next_row(self) -> list[np.ndarray]:
        """The next row, an array for each leaf; raises the error that ended the queue."""


@runtime_checkable
class RowSink(Protocol):
    """Destination of an outfeed's rows."""

    def append(self, row: Sequence[np.ndarray]) -> None:
        """Appends a row, an array for each leaf; raises the error that ended the queue."""


AnyQueue = InfeedRows | RowSink

_bound: ContextVar[Mapping[str, AnyQueue] | None] = ContextVar("bound queues", default=None)


@contextmanager
def bound(queues: Mapping[str, AnyQueue]) -> Iterator[None]:
    """Binds queues to these rings, or other sources and sinks of rows, by name, while the context is open."""
    token = _bound.set(queues)
    try:
        yield
    finally:
        _bound.reset(token)


@definition("custom-call")
def _custom_call(instruction: Instruction, operands: list[np.ndarray]) -> Value:
    """Takes or appends a queue's row or calls a host function, and returns the token; or computes another custom call.

    Raises the error that ended a queue, the error of the function, and InvalidValue for a value that fails a check.
    """
    if is_value_check(instruction):
        check, values = ValueCheck.of(instruction), operands[0]
        element = failing_element(check, values)
        if element >= 0:
            shape = instruction.operands[0].array_shape
            raise invalid_value(check, shape, instruction.op_name, element, values.reshape(-1)[element], 0, 1)
        return operands[-1]
    if is_host_function(instruction):
        results = bound_function(instruction)(operands[:-1])
        return (*results, operands[-1]) if not isinstance(instruction.shape, Shape) else operands[-1]
    if is_vertex(instruction):
        results = run_vertices(instruction, operands)
        return results[0] if isinstance(instruction.shape, Shape) else results
    if is_factorization(instruction):
        return factorized(instruction, operands)
    if is_interpolation(instruction):
        return interpolated(instruction, operands[0])
    if is_first_of_equal(instruction):
        return first_of_equal(operands[0])
    if not is_queue(instruction):
        raise UnsupportedOperation(
            f"Expected an operation the engine defines. Received: {print_instruction(instruction)}. "
            f"Of custom calls, only infeeds, outfeeds, host functions, value checks, vertices, factorizations, "
            f"interpolations and first positions of equal ids have a definition."
        )
    *leaves, token = operands
    ring = (_bound.get() or {}).get(queue_of(instruction))
    if instruction["custom_call_target"] == INFEED:
        if not isinstance(ring, InfeedRows):
            raise _not_bound(instruction)
        return (*ring.next_row(), token)
    if not isinstance(ring, RowSink):
        raise _not_bound(instruction)
    ring.append(leaves)
    return token if isinstance(instruction.shape, Shape) else (token,)


def _not_bound(instruction: Instruction) -> ConfigurationError:
    return ConfigurationError(
        f"Expected a ring for queue {queue_of(instruction)!r}. Received: none. Pass it to run(queues=...)."
    )


def first_of_equal(ids: np.ndarray) -> np.ndarray:
    """The first position of an id equal to each id, int32."""
    _, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
    return first[inverse].astype(np.int32)


def failing_element(check: ValueCheck, values: np.ndarray) -> int:
    """The number of the first element, in row-major order, that fails the check; -1 if all pass."""
    flat = np.asarray(values).reshape(-1)
    if check.kind == "finite":
        failing = ~np.isfinite(flat.astype(np.float64))
    elif check.kind == "nonzero":
        failing = flat == 0
    else:
        lows, bounds = (np.resize(np.array(limits, np.int64), flat.size) for limits in (check.lows, check.bounds))
        if flat.dtype.kind == "f":
            wide = flat.astype(np.float64)
            failing = ~((wide > lows - 1.0) & (wide < bounds))
        else:
            failing = (flat < lows) | (flat >= bounds)
    found = np.flatnonzero(failing)
    return int(found[0]) if found.size else -1
