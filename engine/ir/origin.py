"""Origin of a computation: an operation, and its position in the traced function."""

from __future__ import annotations

from engine.frozen import frozen


@frozen
class Origin:
    """An operation that a compute set executes: its opcode, its op_name in the traced function, its elements.

    `layer` is derived from `op_name` on demand.
    """

    opcode: str
    op_name: str
    elements: int
    layer: str = ""
