"""Random choices that hypothesis can make smaller, and values whose sums are exact in any order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from hypothesis import strategies as st

from engine.ir import Shape

T = TypeVar("T")
SIZES = (1, 2, 3, 4, 5, 7, 17)


class Choices:
    """Draws for a test from hypothesis' data."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data

    def integer(self, low: int, high: int) -> int:
        """Draws an integer from low to high, both included."""
        return self.data.draw(st.integers(low, high))

    def choose(self, options: Sequence[T]) -> T:
        return self.data.draw(st.sampled_from(list(options)))

    def boolean(self) -> bool:
        return self.data.draw(st.booleans())

    def order(self, count: int) -> list[int]:
        return list(self.data.draw(st.permutations(range(count))))

    def subset(self, count: int) -> tuple[int, ...]:
        return tuple(d for d in range(count) if self.boolean())

    def shape(self, low: int, high: int) -> tuple[int, ...]:
        """Sizes for low to high dimensions; one of them is sometimes 0."""
        made = [self.choose(SIZES) for _ in range(self.integer(low, high))]
        if made and self.integer(0, 15) == 15:
            made[self.integer(0, len(made) - 1)] = 0
        return tuple(made)

    def random(self) -> np.random.Generator:
        return np.random.default_rng(self.integer(0, 1000))


def whole_numbers(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    """Small whole numbers of any type."""
    if shape.element_type == "pred":
        return rng.random(shape.dimensions) < 0.5
    low = 0 if shape.dtype.kind == "u" else -3
    values = rng.integers(low, 4, shape.dimensions)
    if shape.dtype.kind == "c":
        return np.asarray(values + 1j * rng.integers(-3, 4, shape.dimensions)).astype(shape.dtype)
    return np.asarray(values).astype(shape.dtype)
