"""Vertices of the user's own: a custom call with the code of one vertex, and the slices that each vertex gets.

Arrays that are split have their first `lead` dimensions joined into rows, `grain` of which are a vertex's slice; an
element-wise vertex has all dimensions joined. Slices depend on sizes alone, so any number of threads has equal results.
"""

from __future__ import annotations

from dataclasses import asdict
from math import prod
from typing import Any, Literal, Self

from engine.frozen import frozen
from engine.ir.device_operations import config_of
from engine.ir.module import Instruction
from engine.ir.shape import Shape

Split = Literal["split", "whole", "reduction"]


@frozen
class Slice:
    """One array of a vertex: the `shape` of the whole array, and the `dimensions` of a full vertex's slice."""

    shape: Shape
    split: Split
    dimensions: tuple[int, ...]

    def of_rows(self, count: int) -> tuple[int, ...]:
        """The dimensions of a slice of `count` rows."""
        return (count, *self.dimensions[1:]) if self.split == "split" else self.dimensions

    @property
    def unit_elements(self) -> int:
        """Elements between the beginnings of the slices of two vertices."""
        return 0 if self.split == "whole" else prod(self.dimensions)


@frozen
class VertexCall:
    """The configuration of a call.

    `splits` has the split of each operand, then of each result: a slice of rows for each vertex, the whole array for
    all (only operands), or an array of its own for each, [vertices, ...], that begins with zeros and is added up later.
    `cycles` are cycles of a worker thread on the chip for one row and for `grain` rows, if they are known. `code` is
    LLVM bitcode, compressed, in base 85: the function `vertex`, with the ABI of a codelet.
    """

    name: str
    splits: tuple[Split, ...]
    lead: int
    grain: int
    code: str
    cycles: tuple[int, int] | None = None

    @classmethod
    def of(cls, instruction: Instruction) -> Self:
        """The configuration of a custom call."""
        config = config_of(instruction)
        splits, cycles = tuple(config.pop("splits")), config.pop("cycles")
        return cls(**config, splits=splits, cycles=None if cycles is None else tuple(cycles))

    def config(self) -> dict[str, Any]:
        """The configuration, which the custom call has as JSON; the code is last."""
        named = asdict(self)
        code = named.pop("code")
        return {**named, "code": code}

    def rows(self, shapes: tuple[Shape, ...]) -> int:
        """The number of rows, given the shapes of operands and results."""
        split = next(shape for shape, split in zip(shapes, self.splits, strict=True) if split == "split")
        return prod(split.dimensions[: self.lead])

    def units(self, shapes: tuple[Shape, ...]) -> int:
        """The number of vertices."""
        return -(-self.rows(shapes) // self.grain)

    def slices(self, shapes: tuple[Shape, ...]) -> tuple[Slice, ...]:
        """The slices of operands and results, given their shapes."""
        return tuple(
            Slice(shape, split, self._seen(shape, split)) for shape, split in zip(shapes, self.splits, strict=True)
        )

    def _seen(self, shape: Shape, split: Split) -> tuple[int, ...]:
        """The dimensions of an array as a full vertex sees it."""
        if split == "split":
            return (self.grain, *shape.dimensions[self.lead :])
        return shape.dimensions[1:] if split == "reduction" else shape.dimensions


def results_of(instruction: Instruction) -> tuple[Shape, ...]:
    """The shapes of a call's results."""
    return (instruction.shape,) if isinstance(instruction.shape, Shape) else instruction.tuple_shapes


def arrays_of(instruction: Instruction) -> tuple[Shape, ...]:
    """The shapes of a call's operands and results."""
    return (*(operand.array_shape for operand in instruction.operands), *results_of(instruction))
