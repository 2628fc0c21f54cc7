"""Kernels of max pooling's gradient where windows overlap: which position windows select, and sums by position.

The lanes run over channels, or over the channels of several neighbouring windows. Columns of windows are unrolled, rows
are a loop.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from engine.codelets import vector
from engine.codelets.loops import Loop
from engine.codelets.memory import F32, I32, I64, POINTER
from engine.codelets.switched import internal_function, switched
from engine.machine_code.llvm import ir
from engine.machine_code.processor import lanes

PREDICATES = {"GE": ">=", "GT": ">", "LE": "<=", "LT": "<"}
"""LLVM's ordered comparisons by HLO's direction: false if one operand is NaN."""
LANES = lanes()


def _for_vectors(builder: ir.IRBuilder, count: ir.Value, body: Callable[[ir.Value, ir.Value | None], None]) -> None:
    """Writes body(first element, mask of its lanes) for all vectors of `count` elements; whole ones have no mask."""
    whole = builder.and_(count, I64(-LANES))
    with builder.if_then(builder.icmp_signed(">", whole, I64(0))):
        loop = Loop(builder, "vectors", I64(0), whole, I64(LANES))
        body(loop.at, None)
        loop.close()
    rest = builder.sub(count, whole)
    with builder.if_then(builder.icmp_signed(">", rest, I64(0))):
        body(whole, vector.lane_mask(builder, rest))


def _numbers(number: int) -> ir.Constant:
    return ir.Constant(vector.vector_type(I32), [number] * LANES)


@cache
def choosing(direction: str, kind: str, width: int) -> Any:
    """`choose(columns, operand, row, column, rows, number, chosen, count)`: positions that windows select.

    int32 chosen[i] is the number, in row-major order in windows of `width` columns, of the position that is kept among
    `rows` rows and `columns` columns from operand[i] on, `row` and `column` bytes apart, of which the first one has the
    number `number`; a kept position stays as long as it compares true with the next. The operand's elements are `kind`.
    """
    predicate, size = PREDICATES[direction], vector.BYTES[kind]

    def make(module: ir.Module, columns: int) -> ir.Function:
        name = f"choose_{columns}"
        if name in module.globals:
            return module.globals[name]
        function, builder = internal_function(module, name, 7)
        operand, row, column, rows, number, chosen, count = function.args
        first_number = vector.splat(builder, builder.trunc(number, I32))

        def choose(first: ir.Value, mask: ir.Value | None) -> None:
            start = builder.add(operand, builder.mul(first, I64(size)))
            # The first position is compared with itself, and stays.
            best = vector.load_vector(builder, start, mask, kind)
            loop = Loop(builder, "rows", I64(0), rows, I64(1), [start, first_number, first_number, best])
            at, numbers, kept, best = loop.carried
            for k in range(columns):
                address = builder.add(at, builder.mul(column, I64(k)))
                candidate = vector.load_vector(builder, address, mask, kind)
                keep = builder.fcmp_ordered(predicate, best, candidate)
                best = builder.select(keep, best, candidate)
                kept = builder.select(keep, kept, builder.add(numbers, _numbers(k)))
            loop.close([builder.add(at, row), builder.add(numbers, _numbers(width)), kept, best])
            bits = builder.bitcast(kept, vector.vector_type(F32))
            vector.store_vector(builder, bits, builder.add(chosen, builder.mul(first, I64(4))), mask)

        _for_vectors(builder, count, choose)
        builder.ret_void()
        return function

    return switched(make, range(1, width + 1), 8)


@cache
def gathering(kind: str, most: int, step: int) -> Any:
    """`gather(columns, source, chosen, row, column, slot, slots, rows, number, down, initial, target, count)`.

    target[i] = the float32 at `initial`, plus source[i] of those windows that have chosen position `number` of theirs,
    in rows and columns of windows `row` and `column` bytes apart. The position's number is `step` less in the next
    column, `down` less in the next row. `chosen` is a ring of `slots` rows; the first row of windows is in slot `slot`.
    The target's elements are `kind`, those of the source float32. Without columns it is the initial value alone.
    """
    size = vector.BYTES[kind]

    def make(module: ir.Module, columns: int) -> ir.Function:
        name = f"gather_{columns}"
        if name in module.globals:
            return module.globals[name]
        function, builder = internal_function(module, name, 12)
        source, chosen, row, column, slot, slots, rows, number, down, initial, target, count = function.args
        start = vector.splat(builder, builder.load(builder.inttoptr(initial, POINTER), align=4, typ=F32))
        first_number = vector.splat(builder, builder.trunc(number, I32))
        fewer = vector.splat(builder, builder.trunc(down, I32))
        around = builder.mul(row, builder.sub(slots, I64(1)))

        def gather(first: ir.Value, mask: ir.Value | None) -> None:
            offset, total = builder.mul(first, I64(4)), start
            if columns:
                begins = [builder.add(each, offset) for each in (source, chosen)]
                loop = Loop(builder, "rows", I64(0), rows, I64(1), [*begins, slot, first_number, start])
                at, at_chosen, in_slot, numbers, total = loop.carried
                for k in range(columns):
                    move = builder.mul(column, I64(k))
                    bits = vector.load_vector(builder, builder.add(at_chosen, move), mask)
                    added = vector.load_vector(builder, builder.add(at, move), mask)
                    wanted = builder.sub(numbers, _numbers(k * step))
                    is_chosen = builder.icmp_signed("==", builder.bitcast(bits, vector.vector_type(I32)), wanted)
                    total = builder.select(is_chosen, builder.fadd(total, added), total)
                following = builder.add(in_slot, I64(1))
                wraps = builder.icmp_signed("==", following, slots)
                below = builder.select(wraps, builder.sub(at_chosen, around), builder.add(at_chosen, row))
                following = builder.select(wraps, I64(0), following)
                loop.close([builder.add(at, row), below, following, builder.sub(numbers, fewer), total])
            vector.store_vector(builder, total, builder.add(target, builder.mul(first, I64(size))), mask, kind)

        _for_vectors(builder, count, gather)
        builder.ret_void()
        return function

    return switched(make, range(most + 1), 13)
