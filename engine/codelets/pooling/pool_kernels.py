"""Kernels of pooling: windows' elements combined, the position that each window selects, and sums by position.

The lanes run over channels, and where neighbouring windows are one column apart over the channels of several of these.
Columns of windows are unrolled, rows are a loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from engine.codelets.language import vector
from engine.codelets.language.lanes import Lanes
from engine.codelets.language.loops import EmittedLoop, for_vectors
from engine.codelets.language.memory import F32, I32, I64, call
from engine.codelets.language.switched import switched
from engine.machine_code.llvm import ir
from engine.machine_code.processor import lanes

PREDICATES = {"GE": ">=", "GT": ">", "LE": "<=", "LT": "<", "UGE": ">="}
"""LLVM's comparisons by HLO's direction, false if one operand is NaN; and UGE, which is true then."""
LANES = lanes()
TOGETHER = 4
"""Vectors side by side: 4, after a trial of 2 and 4 with AVX-512."""
Vectors = tuple[ir.Value, ir.Value]
"""The address of the first of some vectors, and the bytes between them."""
Body = Callable[[Vectors, Vectors, int, ir.Value | None], None]
"""Writes the computation of vectors of the operand, of the result, so many of them, with a mask of their lanes."""


def keeps(builder: ir.IRBuilder, direction: str, kept: ir.Value, candidate: ir.Value) -> ir.Value:
    """Whether a kept position stays, by the direction of the comparison with the next."""
    compare = builder.fcmp_unordered if direction == "UGE" else builder.fcmp_ordered
    return compare(PREDICATES[direction], kept, candidate)


def _each(builder: ir.IRBuilder, vectors: Vectors, count: int) -> list[ir.Value]:
    """The addresses of `count` vectors."""
    address, pitch = vectors
    return [builder.add(address, builder.mul(pitch, I64(v))) for v in range(count)]


@dataclass(frozen=True, slots=True)
class WindowRow:
    """Elements of neighbouring windows: `count` for each window of `windows`, which are `apart` bytes apart in the
    operand and contiguous in the result. Addresses and numbers are int64; sizes are the bytes of an element.
    """

    operand: ir.Value
    size: int
    result: ir.Value
    result_size: int
    count: ir.Value
    windows: ir.Value
    apart: ir.Value

    def places(
        self, builder: ir.IRBuilder, operand: ir.Value, result: ir.Value, element: ir.Value
    ) -> tuple[ir.Value, ir.Value]:
        """The addresses of an element of a window in operand and result."""
        return (
            builder.add(operand, builder.mul(element, I64(self.size))),
            builder.add(result, builder.mul(element, I64(self.result_size))),
        )


def _for_line(builder: ir.IRBuilder, given: WindowRow, body: Body) -> None:
    """Writes `body` for all elements of one window."""

    def write(first: ir.Value, vectors: int, mask: ir.Value | None) -> None:
        at, to = given.places(builder, given.operand, given.result, first)
        body((at, I64(LANES * given.size)), (to, I64(LANES * given.result_size)), vectors, mask)

    for_vectors(builder, given.count, write, TOGETHER)


def _for_windows(builder: ir.IRBuilder, given: WindowRow, body: Body) -> None:
    """Writes `body` for windows that are apart; vectors side by side are of neighbouring windows.

    Lanes after the last element of a window are computed too, where the next windows overwrite them. If a window has
    more elements than a vector, its last vector begins so much earlier that it has no such lanes.
    """
    pitch = builder.mul(given.count, I64(given.result_size))
    end = builder.add(given.result, builder.mul(pitch, given.windows))
    reached = call(builder, "smax.i64", I64, given.count, I64(LANES))
    last, places = builder.sub(reached, I64(LANES)), [given.operand, given.result]
    for vectors, is_masked in ((TOGETHER, False), (1, False), (1, True)):
        until, mask = end, vector.lane_mask(builder, given.count)
        if not is_masked:
            before = builder.mul(pitch, I64(vectors - 1))
            bytes_of_vectors = builder.add(before, builder.mul(reached, I64(given.result_size)))
            until, mask = builder.add(builder.sub(end, bytes_of_vectors), I64(1)), None
        steps = [builder.mul(each, I64(vectors)) for each in (given.apart, pitch)]
        windows = EmittedLoop(builder, "windows", places[1], until, steps[1], places, may_be_empty=True)
        vectors_of_window = EmittedLoop(builder, "channels", I64(0), reached, I64(LANES))
        first = call(builder, "smin.i64", I64, vectors_of_window.at, last)
        at, to = windows.carried
        at, to = given.places(builder, at, to, first)
        body((at, given.apart), (to, pitch), vectors, mask)
        vectors_of_window.close()
        windows.close([builder.add(*each) for each in zip(windows.carried, steps, strict=True)])
        places = windows.carried


def _for_elements(builder: ir.IRBuilder, step: int, given: WindowRow, body: Body) -> None:
    """Writes `body` for windows `step` columns apart; those that are one column apart are one line."""
    (_for_line if step == 1 else _for_windows)(builder, given, body)


@cache
def choosing(direction: str, kind: str, width: int, step: int) -> Any:
    """`choose(columns, operand, row, column, rows, number, 0, chosen, count, windows, apart)`: positions that windows
    select.

    int32 chosen[i] is the number, in row-major order in windows of `width` columns, of the position that is kept among
    `rows` rows and `columns` columns from operand[i] on, `row` and `column` bytes apart, of which the first one has the
    number `number`; a kept position stays as long as it compares true with the next. The operand's elements are `kind`.
    """
    size = vector.BYTES[kind]

    def write(builder: ir.IRBuilder, columns: int, arguments: tuple[ir.Value, ...]) -> None:
        operand, row, column, rows, number, _, chosen, *places = arguments
        first_number = vector.splat(builder, builder.trunc(number, I32))

        def choose(start: Vectors, target: Vectors, vectors: int, mask: ir.Value | None) -> None:
            # The first position is compared with itself, and stays.
            begin = [vector.load_vector(builder, each, mask, kind) for each in _each(builder, start, vectors)]
            carried = [start[0], first_number, *[first_number] * vectors, *begin]
            loop = EmittedLoop(builder, "rows", I64(0), rows, I64(1), carried)
            at, numbers, *held = loop.carried
            kept, best = held[:vectors], held[vectors:]
            for k in range(columns):
                address, this = builder.add(at, builder.mul(column, I64(k))), builder.add(numbers, vector.all_lanes(k))
                for v, each in enumerate(_each(builder, (address, start[1]), vectors)):
                    candidate = vector.load_vector(builder, each, mask, kind)
                    keep = keeps(builder, direction, best[v], candidate)
                    best[v] = builder.select(keep, best[v], candidate)
                    kept[v] = builder.select(keep, kept[v], this)
            loop.close([builder.add(at, row), builder.add(numbers, vector.all_lanes(width)), *kept, *best])
            for each, place in zip(kept, _each(builder, target, vectors), strict=True):
                vector.store_vector(builder, builder.bitcast(each, vector.vector_type(F32)), place, mask)

        _for_elements(builder, step, WindowRow(operand, size, chosen, 4, *places), choose)

    return switched("choose", range(1, width + 1), write)


@cache
def combining(opcode: str, kind: str, width: int, step: int) -> Any:
    """`combine(columns, operand, row, column, rows, 0, initial, result, count, windows, apart)`: the elements of
    windows combined.

    result[i] = the element at `initial`, combined with the elements of `rows` rows and `columns` columns from
    operand[i] on, `row` and `column` bytes apart, in row-major order. Elements are `kind`, accumulators float32.
    """
    size = vector.BYTES[kind]

    def write(builder: ir.IRBuilder, columns: int, arguments: tuple[ir.Value, ...]) -> None:
        operand, row, column, rows, _, initial, result, *places = arguments
        start = Lanes(builder, LANES).load_splat(initial, kind)

        def combine(first: Vectors, target: Vectors, vectors: int, mask: ir.Value | None) -> None:
            totals = [start] * vectors
            if columns:
                loop = EmittedLoop(builder, "rows", I64(0), rows, I64(1), [first[0], *totals])
                at, *totals = loop.carried
                for k in range(columns):
                    address = builder.add(at, builder.mul(column, I64(k)))
                    for v, each in enumerate(_each(builder, (address, first[1]), vectors)):
                        loaded = vector.load_vector(builder, each, mask, kind)
                        totals[v] = vector.combined(builder, opcode, totals[v], loaded)
                loop.close([builder.add(at, row), *totals])
            for total, place in zip(totals, _each(builder, target, vectors), strict=True):
                vector.store_vector(builder, total, place, mask, kind)

        _for_elements(builder, step, WindowRow(operand, size, result, size, *places), combine)

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

        def gather(first: ir.Value, vectors: int, mask: ir.Value | None) -> None:
            offset, totals = builder.mul(first, I64(4)), [start] * vectors
            if columns:
                begins = [builder.add(each, offset) for each in (source, chosen)]
                loop = EmittedLoop(builder, "rows", I64(0), rows, I64(1), [*begins, slot, first_number, *totals])
                at, at_chosen, in_slot, numbers, *totals = loop.carried
                for k in range(columns):
                    move, wanted = builder.mul(column, I64(k)), builder.sub(numbers, vector.all_lanes(k * step))
                    starts = ((builder.add(each, move), I64(4 * LANES)) for each in (at, at_chosen))
                    places = (_each(builder, each, vectors) for each in starts)
                    for v, (of_source, of_chosen) in enumerate(zip(*places, strict=True)):
                        bits = vector.load_vector(builder, of_chosen, mask)
                        added = builder.fadd(totals[v], vector.load_vector(builder, of_source, mask))
                        is_chosen = builder.icmp_signed("==", builder.bitcast(bits, vector.vector_type(I32)), wanted)
                        totals[v] = builder.select(is_chosen, added, totals[v])
                below = _next_in_ring(builder, at_chosen, in_slot, row, slots)
                loop.close([builder.add(at, row), *below, builder.sub(numbers, fewer), *totals])
            place = builder.add(target, builder.mul(first, I64(size)))
            for total, each in zip(totals, _each(builder, (place, I64(LANES * size)), vectors), strict=True):
                vector.store_vector(builder, total, each, mask, kind)

        for_vectors(builder, count, gather, TOGETHER)

    return switched("gather", range(most + 1), write)


def _next_in_ring(
    builder: ir.IRBuilder, at: ir.Value, slot: ir.Value, row: ir.Value, slots: ir.Value
) -> tuple[ir.Value, ir.Value]:
    """The address and the slot of the row after one of a ring of `slots` rows of `row` bytes."""
    following = builder.add(slot, I64(1))
    wraps = builder.icmp_signed("==", following, slots)
    around = builder.mul(row, builder.sub(slots, I64(1)))
    below = builder.select(wraps, builder.sub(at, around), builder.add(at, row))
    return below, builder.select(wraps, I64(0), following)


@cache
def gathering_groups(kind: str, width: int, step: int) -> Any:
    """`gather_groups(1, source, chosen, row, slot, slots, rows, number, down, initial, target, pitch, count, groups)`.

    The same for groups of `step` neighbouring elements, of which the first ones are at the first columns of successive
    windows, of `width` columns: `source` and `chosen` are of the first of these. Elements have `count` channels and are
    `pitch` bytes apart. Lanes after the last channel are written where the next elements are written later.
    """
    size, before = vector.BYTES[kind], range((width - 1) // step, -1, -1)

    def write(builder: ir.IRBuilder, _: int, arguments: tuple[ir.Value, ...]) -> None:
        source, chosen, row, slot, slots, rows, number, down, initial, target, pitch, count, groups = arguments
        start = Lanes(builder, LANES).load_splat(initial, "f32")
        first_number, fewer = (vector.splat(builder, builder.trunc(each, I32)) for each in (number, down))
        column, group = builder.mul(count, I64(4)), builder.mul(pitch, I64(step))
        reached = call(builder, "smax.i64", I64, count, I64(LANES))
        last = builder.sub(reached, I64(LANES))
        loop = EmittedLoop(builder, "groups", I64(0), groups, I64(1), [source, chosen, target])
        source, chosen, target = loop.carried
        channels = EmittedLoop(builder, "channels", I64(0), reached, I64(LANES))
        first = call(builder, "smin.i64", I64, channels.at, last)
        begins = [builder.add(each, builder.mul(first, I64(4))) for each in (source, chosen)]
        carried = [*begins, slot, first_number, *[start] * step]
        of_rows = EmittedLoop(builder, "rows", I64(0), rows, I64(1), carried, may_be_empty=True)
        at, at_chosen, in_slot, numbers, *totals = of_rows.carried
        for k in before:
            move = builder.mul(column, I64(-k))
            value, bits = (vector.load_vector(builder, builder.add(each, move)) for each in (at, at_chosen))
            selected = builder.bitcast(bits, vector.vector_type(I32))
            for each in range(min(step, width - k * step)):
                wanted = builder.add(numbers, vector.all_lanes(each + k * step))
                is_chosen = builder.icmp_signed("==", selected, wanted)
                totals[each] = builder.select(is_chosen, builder.fadd(totals[each], value), totals[each])
        below = _next_in_ring(builder, at_chosen, in_slot, row, slots)
        of_rows.close([builder.add(at, row), *below, builder.sub(numbers, fewer), *totals])
        places = builder.add(target, builder.mul(first, I64(size))), pitch
        for total, each in zip(of_rows.carried[4:], _each(builder, places, step), strict=True):
            vector.store_vector(builder, total, each, None, kind)
        channels.close()
        loop.close([builder.add(*each) for each in ((source, column), (chosen, column), (target, group))])

    return switched("gather_groups", [1], write)
