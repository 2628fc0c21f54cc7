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
from engine.ir.device_operations import FIRST_OF_EQUAL, HOST_FUNCTION, INFEED, QUEUES, queue_of, target_of
from engine.ir.printer import print_instruction
from engine.ir.value_checks import VALUE_CHECK, ValueCheck, invalid_value
from engine.ops.registry import CUSTOM_CALLS, Value, custom_call, definition


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
    define = CUSTOM_CALLS.get(target_of(instruction) or "")
    if define is None:
        raise UnsupportedOperation(
            f"Expected an operation the engine defines. Received: {print_instruction(instruction)}. "
            f"Of custom calls, only infeeds, outfeeds, host functions, value checks, vertices, factorizations, "
            f"interpolations and first positions of equal ids have a definition."
        )
    return define(instruction, operands)


@custom_call(VALUE_CHECK)
def _value_check(instruction: Instruction, operands: list[np.ndarray]) -> Value:
    """Returns the token. Raises InvalidValue for a value that fails the check."""
    check, values = ValueCheck.of(instruction), operands[0]
    element = failing_element(check, values)
    if element >= 0:
        shape = instruction.operands[0].array_shape
        raise invalid_value(check, shape, instruction.op_name, element, values.reshape(-1)[element], 0, 1)
    return operands[-1]


@custom_call(HOST_FUNCTION)
def _host_function(instruction: Instruction, operands: list[np.ndarray]) -> Value:
    results = bound_function(instruction)(operands[:-1])
    return (*results, operands[-1]) if not isinstance(instruction.shape, Shape) else operands[-1]


@custom_call(FIRST_OF_EQUAL)
def _first_of_equal(instruction: Instruction, operands: list[np.ndarray]) -> Value:
    """The first position of an id equal to each id, int32."""
    _, first, inverse = np.unique(operands[0], return_index=True, return_inverse=True)
    return first[inverse].astype(np.int32)


@custom_call(*QUEUES)
def _queue(instruction: Instruction, operands: list[np.ndarray]) -> Value:
    """Takes or appends a queue's row, and returns the token. Raises the error that ended the queue."""
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
