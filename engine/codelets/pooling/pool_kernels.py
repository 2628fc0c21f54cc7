"""Kernels of pooling: windows' elements combined, the position that each window selects, and sums by position.

The lanes run over channels, or over the channels of several neighbouring windows. Columns of windows are unrolled, rows
are a loop.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from engine.codelets.language import vector
from engine.codelets.language.lanes import Lanes
from engine.codelets.language.loops import EmittedLoop, for_vectors
from engine.codelets.language.memory import F32, I32, I64
from engine.codelets.language.switched import switched
from engine.machine_code.llvm import ir
from engine.machine_code.processor import lanes

PREDICATES = {"GE": ">=", "GT": ">", "LE": "<=", "LT": "<", "UGE": ">="}
"""LLVM's comparisons by HLO's direction, false if one operand is NaN; and UGE, which is true then."""
LANES = lanes()
TOGETHER = 4
"""Vectors side by side: 4, after a trial of 2 and 4 with AVX-512."""


def keeps(builder: ir.IRBuilder, direction: str, kept: ir.Value, candidate: ir.Value) -> ir.Value:
    """Whether a kept position stays, by the direction of the comparison with the next."""
    compare = builder.fcmp_unordered if direction == "UGE" else builder.fcmp_ordered
    return compare(PREDICATES[direction], kept, candidate)


def _each(builder: ir.IRBuilder, address: ir.Value, vectors: int, size: int) -> list[ir.Value]:
    """The addresses of neighbouring vectors of elements of `size` bytes."""
    return [builder.add(address, I64(LANES * size * v)) for v in range(vectors)]


@cache
def choosing(direction: str, kind: str, width: int) -> Any:
    """`choose(columns, operand, row, column, rows, number, 0, chosen, count)`: positions that windows select.

    int32 chosen[i] is the number, in row-major order in windows of `width` columns, of the position that is kept among
    `rows` rows and `columns` columns from operand[i] on, `row` and `column` bytes apart, of which the first one has the
    number `number`; a kept position stays as long as it compares true with the next. The operand's elements are `kind`.
    """
    size = vector.BYTES[kind]

    def write(builder: ir.IRBuilder, columns: int, arguments: tuple[ir.Value, ...]) -> None:
        operand, row, column, rows, number, _, chosen, count = arguments
        first_number = vector.splat(builder, builder.trunc(number, I32))

        def choose(first: ir.Value, vectors: int, mask: ir.Value | None) -> None:
            start = builder.add(operand, builder.mul(first, I64(size)))
            # The first position is compared with itself, and stays.
            begin = [vector.load_vector(builder, each, mask, kind) for each in _each(builder, start, vectors, size)]
            loop = EmittedLoop(
                builder, "rows", I64(0), rows, I64(1), [start, first_number, *[first_number] * vectors, *begin]
            )
            at, numbers, *held = loop.carried
            kept, best = held[:vectors], held[vectors:]
            for k in range(columns):
                address, this = builder.add(at, builder.mul(column, I64(k))), builder.add(numbers, vector.all_lanes(k))
                for v, each in enumerate(_each(builder, address, vectors, size)):
                    candidate = vector.load_vector(builder, each, mask, kind)
                    keep = keeps(builder, direction, best[v], candidate)
                    best[v] = builder.select(keep, best[v], candidate)
                    kept[v] = builder.select(keep, kept[v], this)
            loop.close([builder.add(at, row), builder.add(numbers, vector.all_lanes(width)), *kept, *best])
            targets = _each(builder, builder.add(chosen, builder.mul(first, I64(4))), vectors, 4)
            for each, target in zip(kept, targets, strict=True):
                vector.store_vector(builder, builder.bitcast(each, vector.vector_type(F32)), target, mask)

        for_vectors(builder, count, choose, TOGETHER)

    return switched("choose", range(1, width + 1), write)


@cache
def combining(opcode: str, kind: str, width: int) -> Any:
    """`combine(columns, operand, row, column, rows, 0, initial, result, count)`: the elements of windows combined.

    result[i] = the element at `initial`, combined with the elements of `rows` rows and `columns` columns from
    operand[i] on, `row` and `column` bytes apart, in row-major order. Elements are `kind`, accumulators float32.
    """
    size = vector.BYTES[kind]

    def write(builder: ir.IRBuilder, columns: int, arguments: tuple[ir.Value, ...]) -> None:
        operand, row, column, rows, _, initial, result, count = arguments
        start = Lanes(builder, LANES).load_splat(initial, kind)

        def combine(first: ir.Value, vectors: int, mask: ir.Value | None) -> None:
            offset, totals = builder.mul(first, I64(size)), [start] * vectors
            if columns:
                loop = EmittedLoop(builder, "rows", I64(0), rows, I64(1), [builder.add(operand, offset), *totals])
                at, *totals = loop.carried
                for k in range(columns):
                    address = builder.add(at, builder.mul(column, I64(k)))
                    for v, each in enumerate(_each(builder, address, vectors, size)):
                        loaded = vector.load_vector(builder, each, mask, kind)
                        totals[v] = vector.combined(builder, opcode, totals[v], loaded)
                loop.close([builder.add(at, row), *totals])
            for total, target in zip(totals, _each(builder, builder.add(result, offset), vectors, size), strict=True):
                vector.store_vector(builder, total, target, mask, kind)

        for_vectors(builder, count, combine, TOGETHER)

    return switched("combine", range(width + 1), write)


@cache
def gathering(kind: str, most: int, step: int) -> Any:
    """`gather(columns, source, chosen, row, column, slot, slots, rows, number, down, initial, target, count)`.

    target[i] = the float32 at `initial`, plus source[i] of the windows whose chosen position is `number`, in rows and
    columns of windows `row` and `column` bytes apart. The position's number is `step` less in the next
    column, `down` less in the next row. `chosen` is a ring of `slots` rows; the first row of windows is in slot `slot`.
    The target's elements are `kind`, the source's float32. Without columns the target is the initial value alone.
    """
    size = vector.BYTES[kind]

    def write(builder: ir.IRBuilder, columns: int, arguments: tuple[ir.Value, ...]) -> None:
        source, chosen, row, column, slot, slots, rows, number, down, initial, target, count = arguments
        start = Lanes(builder, LANES).load_splat(initial, "f32")
        first_number = vector.splat(builder, builder.trunc(number, I32))
        fewer = vector.splat(builder, builder.trunc(down, I32))
        around = builder.mul(row, builder.sub(slots, I64(1)))

        def gather(first: ir.Value, vectors: int, mask: ir.Value | None) -> None:
            offset, totals = builder.mul(first, I64(4)), [start] * vectors
            if columns:
                begins = [builder.add(each, offset) for each in (source, chosen)]
                loop = EmittedLoop(builder, "rows", I64(0), rows, I64(1), [*begins, slot, first_number, *totals])
                at, at_chosen, in_slot, numbers, *totals = loop.carried
                for k in range(columns):
                    move, wanted = builder.mul(column, I64(k)), builder.sub(numbers, vector.all_lanes(k * step))
                    places = (_each(builder, builder.add(each, move), vectors, 4) for each in (at, at_chosen))
                    for v, (of_source, of_chosen) in enumerate(zip(*places, strict=True)):
                        bits = vector.load_vector(builder, of_chosen, mask)
                        added = builder.fadd(totals[v], vector.load_vector(builder, of_source, mask))
                        is_chosen = builder.icmp_signed("==", builder.bitcast(bits, vector.vector_type(I32)), wanted)
                        totals[v] = builder.select(is_chosen, added, totals[v])
                following = builder.add(in_slot, I64(1))
                wraps = builder.icmp_signed("==", following, slots)
                below = builder.select(wraps, builder.sub(at_chosen, around), builder.add(at_chosen, row))
                following = builder.select(wraps, I64(0), following)
                loop.close([builder.add(at, row), below, following, builder.sub(numbers, fewer), *totals])
            place = builder.add(target, builder.mul(first, I64(size)))
            for total, each in zip(totals, _each(builder, place, vectors, size), strict=True):
                vector.store_vector(builder, total, each, mask, kind)

        for_vectors(builder, count, gather, TOGETHER)

    return switched("gather", range(most + 1), write)
