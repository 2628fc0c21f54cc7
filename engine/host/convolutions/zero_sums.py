"""The elements that outputs of a convolution read for each tap of the kernel, by which Winograd's products find sums of
zeros.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from engine.codelets.convolutions.cook_toom import Axes, Pair, keeps_zeros
from engine.frozen import frozen
from engine.host.convolutions.images import TilePart

if TYPE_CHECKING:
    from engine.codelets.convolutions.zero_sums import ZeroSums

EXPONENT = {"f32": 0x7F800000, "f16": 0x7C00, "bf16": 0x7F80}
"""The bits of the exponent in an element."""
MOST_OUTPUTS, MOST_TAPS = 4, 5
"""Outputs of a group, and taps of a block, along a dimension: together they read at most 64 elements."""


class PartTaps(NamedTuple):
    """The taps of a part of a tile, as many `down` and `across`, and their numbers in the kernel's flags by row."""

    down: int
    across: int
    numbers: tuple[int, ...]

    def blocks(self, part: TilePart, before: int) -> tuple[list[tuple[int, ...]], list[int]]:
        """Fields of `TapBlock`, and numbers of the taps of all blocks, if there are some `before`."""
        entries, numbers = list[tuple[int, ...]](), list[int]()
        for i, j in product(range(0, self.down, MOST_TAPS), range(0, self.across, MOST_TAPS)):
            down, across = min(MOST_TAPS, self.down - i), min(MOST_TAPS, self.across - j)
            place = part.first[0] + i, part.first[1] + j
            entries.append((*place, *part.size, part.offset, down, across, before + len(numbers)))
            numbers += [self.numbers[(i + k) * self.across + j + n] for k in range(down) for n in range(across)]
        return entries, numbers


@frozen
class ReadTaps:
    """The taps of each part of a tile."""

    parts: tuple[PartTaps, ...]

    @classmethod
    def of(cls, numbers: np.ndarray, parts: int, axes: Axes) -> ReadTaps:
        """The taps of a kernel whose parts have the taps `numbers` [part, tap], -1 for those that do not exist.

        The kernel's parts are the `parts` of a tile, and those of the tiles after it, by row and column.
        """
        rows, columns = axes
        flags = np.where(numbers < 0, -1, np.arange(numbers.size).reshape(numbers.shape))
        split = flags.reshape(rows.parts, columns.parts, parts, rows.taps, columns.taps)
        found = []
        for each in split.transpose(2, 0, 3, 1, 4).reshape(parts, rows.parts * rows.taps, -1):
            exist = each >= 0
            down, across = int(exist.any(1).sum()), int(exist.any(0).sum())
            found.append(PartTaps(down, across, tuple(each[:down, :across].reshape(-1).tolist())))
        return cls(tuple(found))

    def record(
        self, parts: tuple[TilePart, ...], field: Pair, axes: Axes, flags: Pair, element_type: str, patterns: int
    ) -> ZeroSums:
        """The words for images with these parts, and outputs of a `field`.

        `flags` are the offset of the kernel's flags and their number for a tap; `patterns` is an offset in scratch.
        """
        from engine.codelets.convolutions.zero_sums import ZeroSums

        entries, numbers = self._blocks(parts)
        common, group, last = self._groups(parts, field)
        return ZeroSums(
            blocks=np.array(entries, np.int64),
            block_count=len(entries),
            numbers=np.array(numbers, np.int64),
            tap_count=len(numbers),
            flags=flags[0],
            flag_count=flags[1],
            is_exact=int(all(map(keeps_zeros, axes))),
            group_rows=group[0],
            group_columns=group[1],
            common=np.array(common, np.int64),
            last_row=last[0],
            last_column=last[1],
            exponent=EXPONENT[element_type],
            patterns=patterns,
        )

    @property
    def block_count(self) -> int:
        """The number of blocks of taps."""
        return sum(-(-each.down // MOST_TAPS) * -(-each.across // MOST_TAPS) for each in self.parts)

    def _blocks(self, parts: tuple[TilePart, ...]) -> tuple[list[tuple[int, ...]], list[int]]:
        entries, numbers = list[tuple[int, ...]](), list[int]()
        for taps, part in zip(self.parts, parts, strict=True):
            more, added = taps.blocks(part, len(numbers))
            entries, numbers = entries + more, numbers + added
        return entries, numbers

    def _groups(self, parts: tuple[TilePart, ...], field: Pair) -> tuple[tuple[int, ...], Pair, Pair]:
        """Fields of the common tap's `TapBlock`, the outputs of a group, and the last outputs with that tap's element.

        Neighbouring outputs, as many as a part has taps, have the last tap of the first of them in common, unless an
        output reads none of the part's elements.
        """
        found, group, last = (0,) * 8, (MOST_OUTPUTS, MOST_OUTPUTS), (0, 0)
        most = 0
        for taps, part in zip(self.parts, parts, strict=True):
            extent = taps.down, taps.across
            along = list(zip(part.first, extent, part.size, field, strict=True))
            reads_all = all(first + n > 0 and count - 1 + first < size for first, n, size, count in along)
            outputs = min(MOST_OUTPUTS, taps.down), min(MOST_OUTPUTS, taps.across)
            if reads_all and prod(outputs) > most:
                most, group = prod(outputs), outputs
                (row, last_row), (column, last_column) = (
                    (first + n - 1, size - first - n) for first, n, size, _ in along
                )
                found, last = (row, column, *part.size, part.offset, 1, 1, 0), (last_row, last_column)
        return found, group, last
