"""Tests of gradients for loss scaling: whether all 16-bit floats of a unit are finite, by their exponents' bits."""

from __future__ import annotations

from typing import Any

from engine.codelets.language.build import codelet, inner
from engine.codelets.language.intrinsic import intrinsic
from engine.codelets.language.lanes import I16, I64, Lanes
from engine.codelets.language.loops import EmittedLoop
from engine.codelets.language.memory import store_i8
from engine.codelets.language.record import Address, Record, word
from engine.machine_code.llvm import ir
from engine.machine_code.processor import lanes

WIDTH = 2 * lanes()
"""16-bit elements of a vector."""
VECTORS = 4
"""Vectors of an iteration, each with a maximum of its own: their latencies overlap."""


class AllFinite(Record):
    """Parameters of `all_finite`. Unit: elements of the array."""

    source: Address  # contiguous elements
    flags: Address  # bytes
    elements: int
    unit_elements: int
    pitch: int  # bytes between the flags of units
    infinity: int  # the bits of +infinity, which finite elements without their signs do not reach


def _greatest(vectors: int, masked: bool) -> Any:
    """The intrinsic that reads whole blocks of vectors, or with `masked` no more than `count` words."""

    @intrinsic
    def greatest(builder: ir.IRBuilder, source: ir.Value, count: ir.Value) -> ir.Value:
        words, one = Lanes(builder, WIDTH), Lanes(builder, 1)
        zeros, signless = (words.constant("u16", each) for each in (0, 0x7FFF))
        loop = EmittedLoop(builder, "words", I64(0), count, I64(vectors * WIDTH), [zeros] * vectors)
        found = []
        for number, held in enumerate(loop.carried):
            place = one.element(source, "u16", builder.add(loop.at, I64(number * WIDTH)))
            mask = words.first(builder.sub(count, loop.at)) if masked else None
            found.append(words.intrinsic("umax", held, builder.and_(words.load(place, "u16", mask), signless)))
        loop.close(found)
        while len(found) > 1:
            found.append(words.intrinsic("umax", found.pop(0), found.pop(0)))
        return builder.zext(words.call(f"llvm.vector.reduce.umax.v{WIDTH}i16", I16, found), I64)

    return greatest


greatest_of_blocks, greatest_of_rest = _greatest(VECTORS, False), _greatest(1, True)


@inner
def greatest_bits(source: int, count: int) -> int:
    """The greatest of `count` 16-bit words without their signs."""
    whole = count // (VECTORS * WIDTH) * (VECTORS * WIDTH)
    greatest = greatest_of_blocks(source, whole) if whole > 0 else 0
    if whole < count:
        greatest = max(greatest, greatest_of_rest(source + 2 * whole, count - whole))
    return greatest


@codelet
def all_finite(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Writes the flags of the units lo <= unit < hi."""
    source, flags = word(parameters, AllFinite.SOURCE), word(parameters, AllFinite.FLAGS)
    elements, step = word(parameters, AllFinite.ELEMENTS), word(parameters, AllFinite.UNIT_ELEMENTS)
    for unit in range(lo, hi):
        first = unit * step
        greatest = greatest_bits(source + 2 * first, min(step, elements - first))
        is_finite = 1 if greatest < word(parameters, AllFinite.INFINITY) else 0
        store_i8(flags + unit * word(parameters, AllFinite.PITCH), is_finite)
