"""Where a computation comes from: an operation, and the place in the traced function that it stands for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Origin:
    """An operation that a compute set does: its opcode, where in the traced function it comes from, its elements.

    `layer` is found in `op_name` where somebody asks for it.
    """

    opcode: str
    op_name: str
    elements: int
    layer: str = ""
