"""Checks of the values that an operation is about to use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from engine.ir.shape import Shape
from engine.ir.value_checks import ValueCheck
from engine.program.buffer import Address
from engine.program.work.base import Footprint, Work


class CheckRecord:
    """Memory in which a check records a failure: for each unit 1 + the number of an element, and its bits."""

    def __init__(self, units: int) -> None:
        self.words = np.zeros((units, 2), np.int64)


@dataclass(frozen=True, slots=True)
class ValueCheckWork(Work):
    """A check of an array, `grain` elements per unit. `call` is the call block, by which a failure ends the step."""

    check: ValueCheck
    shape: Shape
    op_name: str
    call: Address
    operand: Address
    grain: int
    record: CheckRecord = field(compare=False)

    @property
    def unit_count(self) -> int | None:
        """Number of units."""
        return -(-self.shape.elements // self.grain)

    def footprints(self) -> Iterator[Footprint]:
        """All bytes of the array."""
        if self.operand.buffer.kind != "constant":
            yield Footprint(self.operand, 0, self.shape.bytes, False)
