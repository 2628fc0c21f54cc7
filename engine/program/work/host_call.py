"""Calls of functions of the host."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from engine.host_functions import BoundFunction
from engine.program.buffer import Address
from engine.program.work.base import Footprint, Work


@dataclass(frozen=True, slots=True)
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
