"""Areas of a codelet's scratch, with a gap after each: an access beyond an area reaches the gap, not the next area.

The debug executor and tests find writes into gaps, and results that depend on what is read there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from engine.codelets.language.build import inner
from engine.machine_code.abi import RESERVED_SCRATCH

LINE = 64
GAP = 64
"""Least bytes of a gap: a vector, and areas keep their alignment."""
Range = tuple[int, int]


@inner
def after(begin: int, size: int) -> int:
    """Offset of the area that follows one of `size` bytes in a ScratchLayout; `begin` is a multiple of LINE."""
    return begin + (size + LINE - 1) // LINE * LINE + GAP


@dataclass(frozen=True, slots=True)
class ScratchSpace:
    """Bytes of scratch after the executor's words, and their ranges begin <= byte < end that are not accessed."""

    bytes: int = 0
    gaps: tuple[Range, ...] = ()

    @classmethod
    def of(cls, space: int | ScratchSpace) -> ScratchSpace:
        """Returns a scratch space, or makes one of `space` bytes without gaps."""
        return space if isinstance(space, ScratchSpace) else cls(space)


class ScratchLayout:
    """Lays areas out, one after the other."""

    def __init__(self) -> None:
        self._end = self._next = 0
        self._gaps: list[Range] = []

    def area(self, size: int) -> int:
        """Adds an area of `size` bytes, and returns its offset, a multiple of LINE."""
        if self._next > self._end:
            self._gaps.append((self._end, self._next))
        begin = self._next
        self._end = begin + size
        self._next = begin + -(-size // LINE) * LINE + GAP
        return begin

    def after_words(self, size: int) -> int:
        """Adds an area, and returns its offset from the beginning of scratch, where the executor's words are."""
        return RESERVED_SCRATCH + self.area(size)

    def nested(self, reserved: int, *spaces: ScratchSpace) -> int:
        """Adds an area that codelets use as scratch one after the other, after `reserved` bytes; returns its offset."""
        space = shared(spaces)
        begin = self.area(reserved + space.bytes)
        self._gaps += [(begin + reserved + first, begin + reserved + end) for first, end in space.gaps]
        return begin

    def space(self) -> ScratchSpace:
        """All areas, up to the end of the last one."""
        return ScratchSpace(self._end, tuple(self._gaps))


def space_of(*sizes: int) -> ScratchSpace:
    """Makes scratch of areas of these sizes, whose offsets the codelet computes by `after`."""
    layout = ScratchLayout()
    for size in sizes:
        layout.area(size)
    return layout.space()


def shared(spaces: Iterable[ScratchSpace]) -> ScratchSpace:
    """Makes scratch for codelets that run one after the other: gaps are the bytes that none of them accesses."""
    each = tuple(spaces)
    most = max((space.bytes for space in each), default=0)
    unused = [(0, most)] if most else []
    for space in each:
        free = [*space.gaps, (space.bytes, most)]
        met = [(max(a, c), min(b, d)) for a, b in unused for c, d in free]
        unused = [(begin, end) for begin, end in met if begin < end]
    return ScratchSpace(most, tuple(unused))
