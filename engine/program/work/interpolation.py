"""Work that interpolates images, or computes the gradient of that: sums of few elements along each side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from engine.program.work.base import Array, Work


class Taps(NamedTuple):
    """The elements that each result along a side reads.

    `spans` has the first element, their count and the number of the first weight, int64 [results, 3]; `weights` all
    weights, float32.
    """

    spans: np.ndarray
    weights: np.ndarray

    @property
    def mean(self) -> float:
        """The mean number of taps."""
        return float(self.spans[:, 1].mean())


def taps_of(matrix: np.ndarray) -> Taps:
    """The taps of weights [results, elements]. They run from the first to the last element that is not zero."""
    taps, weights = np.zeros((len(matrix), 3), np.int64), []
    begin = 0
    for number, row in enumerate(matrix):
        (found,) = np.nonzero(row)
        if len(found):
            first, count = found[0], found[-1] - found[0] + 1
            taps[number] = first, count, begin
            weights.append(row[first : first + count])
            begin += count
    return Taps(taps, np.concatenate(weights or [np.zeros(1)]).astype(np.float32))


@dataclass(frozen=True, slots=True, eq=False)
class InterpolationWork(Work):
    """Images [n, h, w, c] from images of other sizes, by sums of source rows, then along columns.

    A unit has `unit_rows` rows of the target.
    """

    source: Array
    target: Array
    rows: Taps
    columns: Taps
    unit_rows: int

    @property
    def unit_count(self) -> int:
        images, height, _, _ = self.target.shape.dimensions
        return -(-images * height // self.unit_rows)
