"""Kernels of convolutions with few output features, on planes of input features in scratch: columns are the lanes.

Taps are in runs of neighbouring rows: a vector of a row is loaded once for all outputs that read it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from engine.codelets.convolutions.few_sizes import LANES, MOST_ROWS, VECTOR, RowRun, most_rows, most_vectors
from engine.codelets.language import vector
from engine.codelets.language.lazy import types
from engine.codelets.language.loops import EmittedLoop
from engine.codelets.language.memory import F32, I64, POINTER, Emitter, intrinsic
from engine.codelets.language.switched import internal_function, switched
from engine.machine_code.llvm import ir


@cache
def summing(run: RowRun) -> Any:
    """`sum_taps(case, a, row_a, offset_a, b, offset_b, tap_b, feature_b, sums, runs)`.

    S[y, o, x] = sum over runs r and their taps t of A[(y + t) * row_a + offset_a[r] + 4x] * B[offset_b[r] + t * tap_b +
    o * feature_b], in bytes. Case rows * MOST_ROWS + vectors; `sums` has the vectors of columns x for each y and o.
    """

    def make(module: ir.Module, case: int) -> ir.Function:
        rows, vectors = divmod(case, MOST_ROWS)
        name = f"sum_{rows}_{vectors}"
        if name in module.globals:
            return module.globals[name]
        function, builder = internal_function(module, name, 9)
        a, row_a, offset_a, b, offset_b, tap_b, feature_b, sums, runs = function.args
        start = [vector.zeros()] * (rows * run.features * vectors)
        loop = EmittedLoop(builder, "runs", I64(0), builder.shl(runs, I64(3)), I64(8), start)
        source, weight = (
            builder.add(base, _load(builder, builder.add(table, loop.at), I64))
            for base, table in ((a, offset_a), (b, offset_b))
        )
        factors = _factors(builder, run, weight, tap_b, feature_b)
        totals = _summed(builder, (rows, vectors), (source, row_a), factors, loop.carried)
        loop.close(totals)
        for number, total in enumerate(totals):
            vector.store_vector(builder, total, builder.add(sums, I64(VECTOR * number)))
        builder.ret_void()
        return function

    widths = range(1, most_vectors(run.features) + 1)
    cases = [MOST_ROWS * rows + width for width in widths for rows in range(1, most_rows(run.features, width) + 1)]
    return switched(make, cases, 10)


def _load(builder: ir.IRBuilder, address: ir.Value, kind: ir.Type) -> ir.Value:
    return builder.load(builder.inttoptr(address, POINTER), align=4 if kind is F32 else 8, typ=kind)


def _factors(
    builder: ir.IRBuilder, run: RowRun, weight: ir.Value, tap_b: ir.Value, feature_b: ir.Value
) -> list[list[ir.Value]]:
    """Loads the kernel for a run: for each tap the elements of all features, each in all lanes."""
    made = []
    for _ in range(run.rows):
        at, row = weight, []
        for _ in range(run.features):
            row.append(vector.splat(builder, _load(builder, at, F32)))
            at = builder.add(at, feature_b)
        made.append(row)
        weight = builder.add(weight, tap_b)
    return made


def _summed(
    builder: ir.IRBuilder,
    size: tuple[int, int],
    source: tuple[ir.Value, ir.Value],
    factors: list[list[ir.Value]],
    sums: list[ir.Value],
) -> list[ir.Value]:
    """Adds a run's products to sums [row][feature][vector]; `source` is the address of the first row, and the pitch."""
    sums, (address, pitch), (rows, vectors) = list(sums), source, size
    features = len(factors[0])
    for read in range(rows + len(factors) - 1):
        values = [vector.load_vector(builder, builder.add(address, I64(VECTOR * v))) for v in range(vectors)]
        for row in range(max(0, read - len(factors) + 1), min(rows, read + 1)):
            for feature, factor in enumerate(factors[read - row]):
                for v, value in enumerate(values):
                    at = (row * features + feature) * vectors + v
                    sums[at] = vector.multiply_add(builder, value, factor, sums[at])
        address = builder.add(address, pitch)
    return sums


@intrinsic
def store_lanes(typing_context: Any, source: types.Type, target: types.Type, count: types.Type) -> tuple[Any, Emitter]:
    """Copies a vector of sums in scratch to `count` elements of a result."""

    def emit(context: Any, builder: ir.IRBuilder, _: Any, arguments: tuple[ir.Value, ...]) -> ir.Value:
        source, target, count = arguments
        value, mask = vector.load_vector(builder, source), vector.lane_mask(builder, count)
        # Masked stores are slow on some processors.
        with builder.if_else(builder.icmp_signed("==", count, I64(LANES))) as (whole, rest):
            with whole:
                vector.store_vector(builder, value, target)
            with rest:
                vector.store_vector(builder, value, target, mask)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 3), emit
