"""Tables of int64 offsets, filled, doubled and searched by vectors, for codelets that LLVM does not vectorise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.codelets.language import vector
from engine.codelets.language.intrinsic import intrinsic
from engine.codelets.language.lanes import Lanes
from engine.codelets.language.loops import EmittedLoop
from engine.codelets.language.memory import I64, call
from engine.machine_code.llvm import ir
from engine.machine_code.processor import lanes

LANES = lanes()
NAME = f"v{LANES}i64"
LIMITS = {"smin": (1 << 63) - 1, "smax": -(1 << 63)}
"""Neutral entries: the greatest for a minimum, the least for a maximum."""


def _begun(builder: ir.IRBuilder, count: ir.Value, carried: list[ir.Value]) -> tuple[EmittedLoop, ir.Value, ir.Value]:
    """Begins a loop over the vectors of a table; returns it, the bytes before a vector, and the mask of its entries."""
    loop = EmittedLoop(builder, "entries", I64(0), count, I64(LANES), carried)
    mask = vector.lane_mask(builder, builder.sub(count, loop.at))
    return loop, builder.shl(loop.at, I64(3)), vector.mask_bits(builder, mask)


@intrinsic
def fill_table(builder: ir.IRBuilder, table: ir.Value, count: ir.Value, step: ir.Value) -> None:
    """table[i] = i * step, i < count."""
    lanes_apart = ir.Constant(vector.vector_type(I64), list(range(LANES)))
    first = builder.mul(vector.splat(builder, step), lanes_apart)
    distance = vector.splat(builder, builder.mul(step, I64(LANES)))
    loop, offset, mask = _begun(builder, count, [first])
    (entries,) = loop.carried
    Lanes(builder, LANES).store(entries, builder.add(table, offset), "s64", mask, is_first=False)
    loop.close([builder.add(entries, distance)])


@intrinsic
def double_table(builder: ir.IRBuilder, source: ir.Value, target: ir.Value, count: ir.Value) -> None:
    """target[i] = 2 * source[i], i < count."""
    loop, offset, mask = _begun(builder, count, [])
    entries = Lanes(builder, LANES).load(builder.add(source, offset), "s64", mask, is_first=False)
    Lanes(builder, LANES).store(
        builder.shl(entries, vector.all_lanes(1, I64)), builder.add(target, offset), "s64", mask, is_first=False
    )
    loop.close()


def _extremum(operation: str) -> Any:
    @intrinsic
    def entry(builder: ir.IRBuilder, table: ir.Value, count: ir.Value) -> ir.Value:
        limit, kind = vector.all_lanes(LIMITS[operation], I64), vector.vector_type(I64)
        loop, offset, mask = _begun(builder, count, [limit])
        entries = Lanes(builder, LANES).load(builder.add(table, offset), "s64", mask, is_first=False)
        entries = builder.select(mask, entries, limit)
        found = call(builder, f"{operation}.{NAME}", kind, *loop.carried, entries)
        loop.close([found])
        return call(builder, f"vector.reduce.{operation}.{NAME}", I64, found)

    return entry


least_entry: Callable[[int, int], int] = _extremum("smin")
"""The least of count >= 1 entries of a table."""
greatest_entry: Callable[[int, int], int] = _extremum("smax")
"""The greatest of count >= 1 entries of a table."""
