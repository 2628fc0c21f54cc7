"""Kernels of depthwise convolutions on a window in scratch: rows of vectors of channels, one after the other.

Neighbours are then a constant apart, which is part of the instructions, and zeros around an image need no branches.
Taps are in runs of neighbouring columns: a vector of the window is loaded once for all taps of a run that read it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from engine.codelets.convolutions.window_sizes import VECTOR, ColumnRun, most_columns, most_runs
from engine.codelets.language import vector
from engine.codelets.language.loops import EmittedLoop
from engine.codelets.language.memory import I32, I64, POINTER, VOID, call
from engine.codelets.language.switched import internal_function, switched
from engine.machine_code.llvm import ir

PAIRED = 2
"""Rows of outputs whose sums are in registers together."""


def _load_i64(builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    return builder.load(builder.inttoptr(address, POINTER), align=8, typ=I64)


def _prefetch(builder: ir.IRBuilder, address: ir.Value) -> None:
    call(builder, "prefetch.p0", VOID, builder.inttoptr(address, POINTER), I32(0), I32(3), I32(1))


def _loaded(builder: ir.IRBuilder, address: ir.Value, number: int) -> ir.Value:
    """Vector `number` after an address in a window."""
    return vector.load_vector(builder, builder.add(address, I64(VECTOR * number)))


@cache
def convolving(run: ColumnRun) -> Any:
    """`convolve(outputs, a, row_a, offset_a, b, offset_b, c, row_c, pitch_c, runs, lanes)`.

    C[y * row_c + x * pitch_c] = sum over taps of A[y * row_a + x * step * VECTOR + the tap's offset] * B[the tap's
    offset]. Run r begins at offset_a[r]; offset_b has all taps in the order of the sums. `outputs` is the number of x,
    plus `most_columns` for PAIRED rows.
    """
    most = most_columns(run)

    def make(module: ir.Module, outputs: int) -> ir.Function:
        name = f"convolve_{outputs}"
        if name in module.globals:
            return module.globals[name]
        function, builder = internal_function(module, name, 10)
        a, row_a, offset_a, b, offset_b, c, row_c, pitch_c, runs, lanes = function.args
        rows, columns = (1, outputs) if outputs <= most else (PAIRED, outputs - most)
        mask = vector.lane_mask(builder, lanes)
        start = [vector.zeros()] * (rows * columns)
        loop = EmittedLoop(builder, "runs", I64(0), builder.shl(runs, I64(3)), I64(8), start)
        source = builder.add(a, _load_i64(builder, builder.add(offset_a, loop.at)))
        table = builder.add(offset_b, builder.mul(loop.at, I64(run.columns)))
        factors = []
        for tap in range(run.columns):
            address = builder.add(b, _load_i64(builder, builder.add(table, I64(8 * tap))))
            factors.append(vector.load_vector(builder, address, mask))
        sums = list(loop.carried)
        for y in range(rows):
            part = _convolved(builder, run, source, factors, sums[y * columns : (y + 1) * columns])
            sums[y * columns : (y + 1) * columns] = part
            source = builder.add(source, row_a)
        loop.close(sums)
        targets = []
        for _ in range(rows):
            targets += [builder.add(c, builder.mul(pitch_c, I64(x))) for x in range(columns)]
            c = builder.add(c, row_c)
        _store(builder, sums, targets, lanes, mask)
        builder.ret_void()
        return function

    return switched(make, range(1, PAIRED * most + 1), 11)


def _convolved(
    builder: ir.IRBuilder, run: ColumnRun, source: ir.Value, factors: list[ir.Value], sums: list[ir.Value]
) -> list[ir.Value]:
    """The sums of a row of outputs with the products of a run, in the order of its taps."""
    sums = list(sums)
    reach = (len(sums) - 1) * run.step + run.columns
    for at in reversed(range(reach)) if run.backward else range(reach):
        value = None
        for x in range(len(sums)):
            column = at - x * run.step
            if 0 <= column < run.columns:
                value = _loaded(builder, source, at) if value is None else value
                tap = run.columns - 1 - column if run.backward else column
                sums[x] = vector.multiply_add(builder, value, factors[tap], sums[x])
    return sums


def _store(
    builder: ir.IRBuilder, values: list[ir.Value], targets: list[ir.Value], lanes: ir.Value, mask: ir.Value
) -> None:
    """Stores vectors; masked stores are slow on some processors."""
    with builder.if_else(builder.icmp_signed("==", lanes, I64(VECTOR // 4))) as (whole, rest):
        for branch, chosen in ((whole, None), (rest, mask)):
            with branch:
                for value, target in zip(values, targets, strict=True):
                    vector.store_vector(builder, value, target, chosen)


@cache
def correlating(run: ColumnRun) -> Any:
    """`correlate(runs, a, offset_a, row_a, g, row_g, pitch_g, ahead, rows, columns, c, row_c, adds, lanes)`.

    C[row_c[tap]] (+)= sum over rows y and columns x of A[y * row_a + x * step * VECTOR + the tap's offset] * G[y *
    row_g + x * pitch_g]. Memory `ahead` bytes after G is prefetched.
    """

    def make(module: ir.Module, runs: int) -> ir.Function:
        name = f"correlate_{runs}"
        if name in module.globals:
            return module.globals[name]
        function, builder = internal_function(module, name, 13)
        a, offset_a, row_a, g, row_g, pitch_g, ahead, rows, columns, c, row_c, adds, lanes = function.args
        mask = vector.lane_mask(builder, lanes)
        begins = [_load_i64(builder, builder.add(offset_a, I64(8 * each))) for each in range(runs)]
        kept = max(0, run.columns - run.step)
        outer = EmittedLoop(builder, "rows", I64(0), rows, I64(1), [a, g, *[vector.zeros()] * (runs * run.columns)])
        at_a, at_g, *sums = outer.carried
        known = [_loaded(builder, builder.add(at_a, begin), i) for begin in begins for i in range(kept)]
        inside = EmittedLoop(builder, "columns", I64(0), columns, I64(1), [at_a, at_g, *known, *sums])
        source, gradient, *held = inside.carried
        known, sums = held[: runs * kept], held[runs * kept :]
        _prefetch(builder, builder.add(gradient, ahead))
        factor = vector.load_vector(builder, gradient, mask)
        following = []
        for number, begin in enumerate(begins):
            address = builder.add(source, begin)
            values = known[number * kept : (number + 1) * kept]
            values += [_loaded(builder, address, i) for i in range(kept, run.columns)]
            for tap, value in enumerate(values, number * run.columns):
                sums[tap] = vector.multiply_add(builder, value, factor, sums[tap])
            following += values[run.step :] if kept else []
        inside.close([builder.add(source, I64(VECTOR * run.step)), builder.add(gradient, pitch_g), *following, *sums])
        outer.close([builder.add(at_a, row_a), builder.add(at_g, row_g), *sums])
        _store_sums(builder, sums, c, row_c, adds, mask)
        builder.ret_void()
        return function

    return switched(make, range(1, most_runs(run) + 1), 14)


def _store_sums(
    builder: ir.IRBuilder, sums: list[ir.Value], c: ir.Value, row_c: ir.Value, adds: ir.Value, mask: ir.Value
) -> None:
    """Stores sums at the offsets of a table, or adds them to the elements there."""
    targets = [builder.add(c, _load_i64(builder, builder.add(row_c, I64(8 * t)))) for t in range(len(sums))]
    with builder.if_else(builder.icmp_signed("!=", adds, I64(0))) as (add, replace):
        with add:
            for target, total in zip(targets, sums, strict=True):
                total = builder.fadd(vector.load_vector(builder, target, mask), total)
                vector.store_vector(builder, total, target, mask)
        with replace:
            for target, total in zip(targets, sums, strict=True):
                vector.store_vector(builder, total, target, mask)
