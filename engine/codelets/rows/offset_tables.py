"""Tables of int64 offsets, filled, doubled and searched by vectors, for codelets that LLVM does not vectorise."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from engine.codelets.language import vector
from engine.codelets.language.intrinsic import intrinsic
from engine.codelets.language.lanes import Lanes
from engine.codelets.language.loops import EmittedLoop
from engine.codelets.language.memory import I64, call
from engine.machine_code.llvm import ir
from engine.machine_code.processor import lanes

LANES = lanes()
WIDE = 16  # lanes of AVX-512, whose masks take no time
NAME = f"v{LANES}i64"
LIMITS = {"smin": (1 << 63) - 1, "smax": -(1 << 63)}
"""Neutral entries: the greatest for a minimum, the least for a maximum."""
Visit = Callable[[ir.Value, ir.Value | None, list[ir.Value]], list[ir.Value]]


def _over_vectors(builder: ir.IRBuilder, count: ir.Value, carried: list[ir.Value], visit: Visit) -> list[ir.Value]:
    """Visits the vectors of a table: the last one, and with AVX-512 all, under a mask.

    carried = visit(bytes before the vector, mask or None, carried).
    """
    parts = [I64(0), count] if LANES == WIDE else [I64(0), builder.and_(count, I64(-LANES)), count]
    for begin, end in pairwise(parts):
        loop = EmittedLoop(builder, "entries", begin, end, I64(LANES), carried, may_be_empty=True)
        mask = None
        if end is count:
            mask = vector.mask_bits(builder, vector.lane_mask(builder, builder.sub(count, loop.at)))
        loop.close(visit(builder.shl(loop.at, I64(3)), mask, loop.carried))
        carried = loop.carried
    return carried


@intrinsic
def fill_table(builder: ir.IRBuilder, table: ir.Value, count: ir.Value, step: ir.Value) -> None:
    """table[i] = i * step, i < count; the table has space for whole vectors."""
    lanes_apart = ir.Constant(vector.vector_type(I64), list(range(LANES)))
    first = builder.mul(vector.splat(builder, step), lanes_apart)
    distance = vector.splat(builder, builder.mul(step, I64(LANES)))
    loop = EmittedLoop(builder, "entries", I64(0), count, I64(LANES), [first])
    Lanes(builder, LANES).store(loop.carried[0], builder.add(table, builder.shl(loop.at, I64(3))), "s64")
    loop.close([builder.add(loop.carried[0], distance)])


@intrinsic
def double_table(builder: ir.IRBuilder, source: ir.Value, target: ir.Value, count: ir.Value) -> None:
    """target[i] = 2 * source[i], i < count; the target has space for whole vectors."""
    vectors = Lanes(builder, LANES)

    def double(offset: ir.Value, mask: ir.Value | None, carried: list[ir.Value]) -> list[ir.Value]:
        entries = vectors.load(builder.add(source, offset), "s64", mask, is_first=False)
        doubled = builder.shl(entries, vector.all_lanes(1, I64))
        vectors.store(doubled, builder.add(target, offset), "s64")
        return carried

    _over_vectors(builder, count, [], double)


def _extremum(operation: str) -> Any:
    @intrinsic
    def entry(builder: ir.IRBuilder, table: ir.Value, count: ir.Value) -> ir.Value:
        limit, kind = vector.all_lanes(LIMITS[operation], I64), vector.vector_type(I64)

        def visit(offset: ir.Value, mask: ir.Value | None, carried: list[ir.Value]) -> list[ir.Value]:
            entries = Lanes(builder, LANES).load(builder.add(table, offset), "s64", mask, is_first=False)
            entries = entries if mask is None else builder.select(mask, entries, limit)
            return [call(builder, f"{operation}.{NAME}", kind, *carried, entries)]

        (found,) = _over_vectors(builder, count, [limit], visit)
        return call(builder, f"vector.reduce.{operation}.{NAME}", I64, found)

    return entry


least_entry: Callable[[int, int], int] = _extremum("smin")
"""The least of count >= 1 entries of a table."""
greatest_entry: Callable[[int, int], int] = _extremum("smax")
"""The greatest of count >= 1 entries of a table."""
