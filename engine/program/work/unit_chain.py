"""Works run unit by unit, all of them for one unit before the next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from engine.codelets.chain import Chain, Link, Piece, chain, chain_scratch_bytes
from engine.program.buffer import Address, Buffer
from engine.program.work.base import Addressed, Encoded, Footprint, Work, addresses_in

LINE = 64


@dataclass(frozen=True, slots=True)
class ChainedWork(Addressed):
    """Work of so many `units`, `ratio` of them in one of the chain."""

    work: Work
    ratio: int
    units: int


@dataclass(frozen=True, slots=True)
class UnitChain(Work):
    """`own` are buffers that the links alone use, and the bytes of a unit's piece: in scratch, never in memory."""

    links: tuple[ChainedWork, ...]
    own: tuple[tuple[Buffer, int], ...] = ()

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Those of the links but for their own buffers."""
        own = {buffer for buffer, _ in self.own}
        return tuple(a for a in addresses_in(self.links) if a.buffer not in own)

    def footprints(self) -> Iterator[Footprint]:
        """Those of the works in it, but for what never becomes memory."""
        own = {buffer for buffer, _ in self.own}
        return (
            f for work in (link.work for link in self.links) for f in work.footprints() if f.address.buffer not in own
        )

    def encode(self) -> Encoded:
        """The head of `chain`: its links and pieces of scratch; then the parameter blocks of all links."""
        blocks = [link.work.encode() for link in self.links]
        starts = np.cumsum([0, *(len(block.words) for block in blocks)]).tolist()
        offsets, room = dict[Buffer, int](), 0
        for buffer, size in self.own:
            offsets[buffer], room = room, room + -(-size // LINE) * LINE
        sizes = dict(self.own)
        moved = [replace(r, word=at + r.word) for at, b in zip(starts, blocks, strict=False) for r in b.relocations]
        pieces = [
            (r.word, offsets[r.address.buffer], sizes[r.address.buffer]) for r in moved if r.address.buffer in sizes
        ]
        first = int(Chain.WORDS) + int(Link.WORDS) * len(blocks) + int(Piece.WORDS) * len(pieces)
        head = [len(blocks), len(pieces), starts[-1], room]
        for start, link in zip(starts, self.links, strict=False):
            head += [0, start, link.ratio, link.units]
        head += [word for piece in pieces for word in piece]
        codelets = (int(Chain.WORDS) + int(Link.WORDS) * number + int(Link.CODELET) for number in range(len(blocks)))
        return Encoded(
            chain,
            np.concatenate([np.array(head, np.int64), *(block.words for block in blocks)]),
            tuple(replace(r, word=first + r.word) for r in moved if r.address.buffer not in sizes),
            chain_scratch_bytes(starts[-1], room, max(block.scratch_bytes for block in blocks)),
            tuple(table for block in blocks for table in block.keep),
            tuple(zip(codelets, (block.codelet for block in blocks), strict=True)),
        )
