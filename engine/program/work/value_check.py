"""Checks of the values that an operation is about to use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from engine.codelets.language.exceptions import EXPONENTS
from engine.codelets.language.record import block
from engine.codelets.value_check import FINITE, FLOAT_RANGE, NONZERO, RANGE, ValueCheckBlock, check_values
from engine.ir.shape import FLOATS, UNSIGNED, Shape
from engine.ir.value_checks import ValueCheck
from engine.program.buffer import Address
from engine.program.work.base import Encoded, Footprint, Work

KINDS = {"range": RANGE, "nonzero": NONZERO, "finite": FINITE}


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

    def encode(self) -> Encoded:
        """The block of the array and its bounds."""
        kind = self.shape.element_type
        is_float_range = self.check.kind == "range" and kind in FLOATS
        parameters = ValueCheckBlock(
            call=self.call,
            record=self.record.words,
            operand=self.operand,
            elements=self.shape.elements,
            grain=self.grain,
            kind=FLOAT_RANGE if is_float_range else KINDS[self.check.kind],
            item_bytes=self.shape.dtype.itemsize,
            signed=int(kind not in UNSIGNED | {"pred"}),
            exponent=EXPONENTS.get(kind, 0),
            period=len(self.check.bounds),
            lows=np.array(self.check.lows, np.int64),
            bounds=np.array(self.check.bounds, np.int64),
        )
        return Encoded.of(check_values, block(parameters))
