"""Work on matrices: factors, solutions of linear systems. A unit has a matrix, or right-hand sides of one."""

from __future__ import annotations

from typing import ClassVar

from engine.frozen import frozen
from engine.program.buffer import Address
from engine.program.work.base import Work


@frozen
class CholeskyWork(Work):
    """HLO's cholesky of matrices [size, size]."""

    vertex_fields: ClassVar = ("element_type",)

    source: Address
    target: Address
    size: int
    lower: bool
    element_type: str


@frozen
class SolveWork(Work):
    """HLO's triangular-solve of `matrices` systems of `size` unknowns. A unit has `block` right-hand sides of one."""

    vertex_fields: ClassVar = ("element_type",)

    a: Address
    b: Address
    x: Address
    element_type: str
    matrices: int
    size: int
    right_sides: int
    left_side: bool
    lower: bool
    unit_diagonal: bool
    transpose_a: str
    block: int

    @property
    def unit_count(self) -> int:
        return self.matrices * -(-self.right_sides // self.block)

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds, those for missing right-hand sides of the last blocks included."""
        return self.unit_count * self.block * self.size**2 // 2


@frozen
class FactorizationWork(Work):
    """A custom call of engine.ir.factorizations, the `target`, of matrices [rows, columns]."""

    vertex_fields: ClassVar = ("target", "element_type")

    target: str
    operands: tuple[Address, ...]
    results: tuple[Address, ...]
    rows: int
    columns: int
    element_type: str
    full: bool = False
    """Whether Q is square."""
    vectors: bool = False
    """Whether there are singular vectors, or eigenvectors."""
    right_sides: int = 0
