"""Tables of int64 offsets, filled, doubled and searched by vectors, for codelets that LLVM does not vectorise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.codelets.language import vector
from engine.codelets.language.intrinsic import intrinsic
from engine.codelets.language.loops import EmittedLoop
from engine.codelets.language.memory import I32, I64, POINTER, VOID, call
from engine.machine_code.llvm import ir
from engine.machine_code.processor import lanes

LANES = lanes()
NAME = f"v{LANES}i64"
LIMITS = {"smin": (1 << 63) - 1, "smax": -(1 << 63)}
"""Neutral entries: the greatest for a minimum, the least for a maximum."""


def _load(builder: ir.IRBuilder, address: ir.Value, mask: ir.Value, otherwise: int) -> ir.Value:
    pointer, kind = builder.inttoptr(address, POINTER), vector.vector_type(I64)
    return call(builder, f"masked.load.{NAME}.p0", kind, pointer, I32(8), mask, vector.all_lanes(otherwise, I64))


def _store(builder: ir.IRBuilder, value: ir.Value, address: ir.Value, mask: ir.Value) -> None:
    pointer = builder.inttoptr(address, POINTER)
    call(builder, f"masked.store.{NAME}.p0", VOID, value, pointer, I32(8), mask)


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
    _store(builder, entries, builder.add(table, offset), mask)
    loop.close([builder.add(entries, distance)])


@intrinsic
def double_table(builder: ir.IRBuilder, source: ir.Value, target: ir.Value, count: ir.Value) -> None:
    """target[i] = 2 * source[i], i < count."""
    loop, offset, mask = _begun(builder, count, [])
    entries = _load(builder, builder.add(source, offset), mask, 0)
    _store(builder, builder.shl(entries, vector.all_lanes(1, I64)), builder.add(target, offset), mask)
    loop.close()


def _extremum(operation: str) -> Any:
    @intrinsic
    def entry(builder: ir.IRBuilder, table: ir.Value, count: ir.Value) -> ir.Value:
        limit, kind = LIMITS[operation], vector.vector_type(I64)
        loop, offset, mask = _begun(builder, count, [vector.all_lanes(limit, I64)])
        entries = _load(builder, builder.add(table, offset), mask, limit)
        found = call(builder, f"{operation}.{NAME}", kind, *loop.carried, entries)
        loop.close([found])
        return call(builder, f"vector.reduce.{operation}.{NAME}", I64, found)

    return entry


least_entry: Callable[[int, int], int] = _extremum("smin")
"""The least of count >= 1 entries of a table."""
greatest_entry: Callable[[int, int], int] = _extremum("smax")
"""The greatest of count >= 1 entries of a table."""
