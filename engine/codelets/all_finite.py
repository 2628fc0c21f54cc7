"""Tests of gradients for loss scaling: whether all 16-bit floats of a unit are finite, by their exponents' bits."""

from __future__ import annotations

from typing import Any

from engine.codelets.host.rows import word
from engine.codelets.language import vector
from engine.codelets.language.build import codelet, inner
from engine.codelets.language.intrinsic import intrinsic
from engine.codelets.language.loops import EmittedLoop
from engine.codelets.language.memory import I32, I64, POINTER, call, store_i8
from engine.codelets.language.record import Address, Record
from engine.machine_code.llvm import ir
from engine.machine_code.processor import lanes

WIDTH = 2 * lanes()
"""16-bit elements of a vector."""
VECTORS = 4
"""Vectors of an iteration, each with a maximum of its own: their latencies overlap."""
KIND = ir.VectorType(vector.I16, WIDTH)
NAME = f"v{WIDTH}i16"
SIGNLESS = ir.Constant(KIND, [0x7FFF] * WIDTH)
ZEROS = ir.Constant(KIND, [0] * WIDTH)


class AllFinite(Record):
    """Parameters of `all_finite`. Unit: elements of the array."""

    source: Address  # contiguous elements
    flags: Address  # bytes
    elements: int
    unit_elements: int
    pitch: int  # bytes between the flags of units
    infinity: int  # the bits of +infinity, which finite elements without their signs do not reach


def _lane_mask(builder: ir.IRBuilder, count: ir.Value) -> ir.Value:
    """A mask of the first `count` of WIDTH lanes."""
    numbers = ir.Constant(ir.VectorType(I64, WIDTH), list(range(WIDTH)))
    spread = builder.insert_element(ir.Constant(numbers.type, ir.Undefined), count, I32(0))
    first = ir.Constant(ir.VectorType(I32, WIDTH), [0] * WIDTH)
    return builder.icmp_signed("<", numbers, builder.shuffle_vector(spread, spread, first))


def _greatest(vectors: int, masked: bool) -> Any:
    """The intrinsic that reads whole blocks of vectors, or with `masked` no more than `count` words."""

    @intrinsic
    def greatest(builder: ir.IRBuilder, source: ir.Value, count: ir.Value) -> ir.Value:
        loop = EmittedLoop(builder, "words", I64(0), count, I64(vectors * WIDTH), [ZEROS] * vectors)
        found = []
        for number, held in enumerate(loop.carried):
            offset = builder.shl(builder.add(loop.at, I64(number * WIDTH)), I64(1))
            pointer = builder.inttoptr(builder.add(source, offset), POINTER)
            if masked:
                mask = _lane_mask(builder, builder.sub(count, loop.at))
                words = call(builder, f"masked.load.{NAME}.p0", KIND, pointer, I32(2), mask, ZEROS)
            else:
                words = builder.load(pointer, align=2, typ=KIND)
            found.append(call(builder, f"umax.{NAME}", KIND, held, builder.and_(words, SIGNLESS)))
        loop.close(found)
        while len(found) > 1:
            found.append(call(builder, f"umax.{NAME}", KIND, found.pop(0), found.pop(0)))
        return builder.zext(call(builder, f"vector.reduce.umax.{NAME}", vector.I16, *found), I64)

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
