"""Element types and shapes, with HLO's names."""

from __future__ import annotations

from math import prod

import ml_dtypes
import numpy as np

from engine.frozen import frozen

NUMPY_TYPES: dict[str, np.dtype] = {
    "pred": np.dtype(np.bool_),
    "s8": np.dtype(np.int8),
    "s16": np.dtype(np.int16),
    "s32": np.dtype(np.int32),
    "s64": np.dtype(np.int64),
    "u8": np.dtype(np.uint8),
    "u16": np.dtype(np.uint16),
    "u32": np.dtype(np.uint32),
    "u64": np.dtype(np.uint64),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "c64": np.dtype(np.complex64),
    "c128": np.dtype(np.complex128),
}
ELEMENT_TYPES = {dtype: name for name, dtype in NUMPY_TYPES.items()}
FLOATS = frozenset({"f16", "bf16", "f32", "f64"})
SIGNED = frozenset({"s8", "s16", "s32", "s64"})
UNSIGNED = frozenset({"u8", "u16", "u32", "u64"})
INTEGERS = SIGNED | UNSIGNED
COMPLEX = frozenset({"c64", "c128"})
PRED = frozenset({"pred"})
NUMBERS = FLOATS | INTEGERS | COMPLEX
ORDERED = FLOATS | INTEGERS | PRED


@frozen
class Shape:
    """An array's element type and dimensions; its elements are in row-major order."""

    element_type: str
    dimensions: tuple[int, ...] = ()

    @property
    def rank(self) -> int:
        return len(self.dimensions)

    @property
    def elements(self) -> int:
        return prod(self.dimensions)

    @property
    def dtype(self) -> np.dtype:
        return NUMPY_TYPES[self.element_type]

    @property
    def bytes(self) -> int:
        return self.elements * self.dtype.itemsize

    @property
    def leaves(self) -> tuple[Shape, ...]:
        return (self,)

    def with_type(self, element_type: str) -> Shape:
        return Shape(element_type, self.dimensions)

    def with_dimensions(self, dimensions: tuple[int, ...]) -> Shape:
        return Shape(self.element_type, tuple(dimensions))

    def __str__(self) -> str:
        return f"{self.element_type}[{','.join(map(str, self.dimensions))}]"


@frozen
class TupleShape:
    """The shape of a tuple of arrays (or of tuples)."""

    elements: tuple[AnyShape, ...] = ()

    @property
    def leaves(self) -> tuple[Shape, ...]:
        """The arrays of the tuple and of the tuples in it."""
        return tuple(leaf for element in self.elements for leaf in element.leaves)

    @property
    def bytes(self) -> int:
        return sum(leaf.bytes for leaf in self.leaves)

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.elements))})"


AnyShape = Shape | TupleShape


def shape_of(array: np.ndarray) -> Shape:
    """The shape of a NumPy array; raises KeyError for a dtype that HLO lacks."""
    return Shape(ELEMENT_TYPES[array.dtype], tuple(array.shape))


def holds_all_of(wide: str, narrow: str) -> bool:
    """Whether each value of the real element type `narrow` is a value of `wide` as well."""
    if wide == narrow or {wide, narrow} & COMPLEX:
        return wide == narrow
    # NumPy takes float64 for all integers of 64 bits, too.
    is_rounded = wide in FLOATS and narrow in ("s64", "u64")
    return not is_rounded and np.can_cast(NUMPY_TYPES[narrow], NUMPY_TYPES[wide])
