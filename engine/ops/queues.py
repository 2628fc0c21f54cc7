"""Infeeds and outfeeds by their definitions: rows of the rings that are bound while a module is evaluated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

import numpy as np

from engine.errors import ConfigurationError, UnsupportedOperation
from engine.ir import Instruction, Shape
from engine.ir.device_operations import INFEED, is_queue, queue_of
from engine.ir.printer import print_instruction
from engine.ops.registry import Value, definition

if TYPE_CHECKING:
    from engine.runtime.rings import AnyRing

_bound: ContextVar[Mapping[str, AnyRing] | None] = ContextVar("bound queues", default=None)


@contextmanager
def bound(queues: Mapping[str, AnyRing]) -> Iterator[None]:
    """Queues have these rings within."""
    token = _bound.set(queues)
    try:
        yield
    finally:
        _bound.reset(token)


@definition("custom-call")
def _custom_call(instruction: Instruction, operands: list[np.ndarray]) -> Value:
    """An infeed takes a row and an outfeed appends one; the token is handed on. Raises the ring's error if it ended."""
    if not is_queue(instruction):
        raise UnsupportedOperation(
            f"Expected an operation the engine defines. Received: {print_instruction(instruction)}. "
            f"Of custom calls, only infeeds and outfeeds have a definition."
        )
    # Rings load Numba, which takes long: not for those that only look up definitions.
    from engine.runtime.rings import InfeedRing, OutfeedRing

    *leaves, token = operands
    ring = (_bound.get() or {}).get(queue_of(instruction))
    if instruction["custom_call_target"] == INFEED:
        if not isinstance(ring, InfeedRing):
            raise _not_bound(instruction)
        return (*ring.next_row(), token)
    if not isinstance(ring, OutfeedRing):
        raise _not_bound(instruction)
    ring.append(leaves)
    return token if isinstance(instruction.shape, Shape) else (token,)


def _not_bound(instruction: Instruction) -> ConfigurationError:
    return ConfigurationError(
        f"Expected a ring for queue {queue_of(instruction)!r}. Received: none. Pass it to run(queues=...)."
    )
