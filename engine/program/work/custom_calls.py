"""Work of custom calls: functions of the host, vertices of the user's own, checks of values about to be used."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import ClassVar

import numpy as np

from engine.frozen import frozen
from engine.host_functions import BoundFunction
from engine.ir.shape import Shape
from engine.ir.value_checks import ValueCheck
from engine.program.buffer import Address
from engine.program.work.base import Addressed, Footprint, Work


@frozen
class HostCall(Work):
    """One call of a function on whole arrays, in place. `call` is the call block, by which a failure ends the step."""

    function: BoundFunction
    call: Address
    operands: tuple[Address, ...]
    results: tuple[Address, ...]

    def footprints(self) -> Iterator[Footprint]:
        """All bytes of each array."""
        for arrays, shapes, writes in (
            (self.operands, self.function.operands, False),
            (self.results, self.function.results, True),
        ):
            for address, shape in zip(arrays, shapes, strict=True):
                if address.buffer.kind != "constant":
                    yield Footprint(address, 0, shape.bytes, writes)


@frozen
class VertexSlice(Addressed):
    """An array of a vertex: bytes between the slices of two units, and the dimensions of a full unit's slice."""

    address: Address
    stride: int
    dimensions: tuple[int, ...]


@frozen
class VertexCallWork(Work):
    """Runs a vertex with some code on operands and results. A unit has `grain` of the `rows`."""

    vertex_fields: ClassVar = ("name", "code")

    name: str
    code: str
    arrays: tuple[VertexSlice, ...]
    rows: int
    grain: int


class CheckRecord:
    """Memory in which a check records a failure: for each unit 1 + the number of an element, and its bits."""

    def __init__(self, units: int) -> None:
        self.words = np.zeros((units, 2), np.int64)


@frozen
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
