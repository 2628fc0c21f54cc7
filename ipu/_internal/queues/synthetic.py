"""Infeeds of synthetic data: endless rows, without the data set (TF_POPLAR_FLAGS=--use_synthetic_data)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from engine.errors import ConfigurationError
from engine.ir.shape import Shape
from ipu._internal.config.system import synthetic_data_categories, synthetic_data_initializer

if TYPE_CHECKING:
    from engine.runtime.rings import InfeedRing

SLOTS = 2
"""Number of different rows; they repeat for a device with more replicas."""


def is_synthetic(category: str) -> bool:
    """Whether TF_POPLAR_FLAGS selects synthetic data for a category: "infeed", "outfeed"."""
    categories = synthetic_data_categories()
    return categories is None or category in categories


def synthetic_rows(shapes: Sequence[Shape], count: int) -> list[np.ndarray]:
    """An array [count, ...] for each leaf, of zeros or by --synthetic_data_initializer.

    Raises ConfigurationError for an initializer other than random, uniform, normal and integers.
    """
    kind, generator = synthetic_data_initializer(), np.random.default_rng()
    rows = []
    for shape in shapes:
        size = (count, *shape.dimensions)
        if kind in ("random", "normal"):
            values = generator.standard_normal(size)
        elif kind == "uniform":
            values = generator.random(size)
        elif kind.removeprefix("-").isdecimal():
            values = np.full(size, int(kind))
        else:
            raise ConfigurationError(
                f"Expected --synthetic_data_initializer in TF_POPLAR_FLAGS to be random, uniform, normal or an "
                f"integer. Received: {kind!r}. Nearest: 0."
            )
        rows.append(values.astype(shape.dtype))
    return rows


class SyntheticFeeder:
    """A Feeder for an infeed without a data set or a thread."""

    def __init__(self, shapes: Sequence[Shape]) -> None:
        self._shapes = shapes
        self._rows = synthetic_rows(shapes, SLOTS)
        self.ring: InfeedRing | None = None
        self.replicas = 0

    def begin(self, replicas: int) -> InfeedRing:
        """The ring for a program of `replicas` replicas."""
        if self.ring is None:
            # The engine loads Numba, which takes long: imported only for a program.
            from engine.runtime.rings import InfeedRing

            self.replicas = replicas
            self.ring = InfeedRing(self._shapes, SLOTS)
            self.ring.put_for_ever(self._rows)
        return self.ring

    def end(self) -> None:
        """Does nothing at the end of a program: there is no thread."""

    def stop(self) -> None:
        """Closes the ring: programs that take elements fail."""
        if self.ring is not None:
            self.ring.close()
