"""Work of vertices of the user's own."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from engine.program.buffer import Address
from engine.program.work.base import Addressed, Work


@dataclass(frozen=True, slots=True)
class VertexSlice(Addressed):
    """An array of a vertex: bytes between the slices of two units, and the dimensions of a full unit's slice."""

    address: Address
    stride: int
    dimensions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class VertexCallWork(Work):
    """Runs a vertex with some code on operands and results. A unit has `grain` of the `rows`."""

    name: str
    code: str
    arrays: tuple[VertexSlice, ...]
    rows: int
    grain: int

    @property
    def vertex(self) -> Hashable:
        """The name and the code."""
        return self.name, self.code
