"""Work that finds floating-point exceptions of a result which its operands do not explain."""

from __future__ import annotations

from engine.frozen import frozen
from engine.program.buffer import Address
from engine.program.work.base import Array, Work


@frozen
class ExceptionCheckWork(Work):
    """Counts NaNs and infinities of a result whose operands have none, where `record` has the words of exceptions.

    `wanted` are names of ir.floating_point.EXCEPTIONS. A unit has `grain` of the result's [any, extent, inner].
    """

    record: Address
    wanted: tuple[str, ...]
    result: Array
    operands: tuple[Array, ...]
    inner: int
    extent: int
    grain: int

    @property
    def unit_count(self) -> int:
        return -(-self.extent // self.grain)
