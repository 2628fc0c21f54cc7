"""The micro kernels: a few rows of C by a few vectors of columns, held in registers along all of k."""

from __future__ import annotations

from functools import cache
from typing import Any

from llvmlite import ir
from numba.core import types

from engine.codelets import vector
from engine.codelets.memory import F32, I64, POINTER, VOID, Emitter, intrinsic

# a, row_a, offset_a, b, pitch_b, c, row_c, k, accumulate, columns of the last vector
ARGUMENTS = 10


@cache
def row_counts() -> dict[int, tuple[int, ...]]:
    """For each number of vectors of columns, the numbers of rows there are kernels for, in descending order.

    The largest leaves registers for B and for elements of A; the others serve the rows that remain.
    """
    # 12x2 would fit too, but LLVM loads all elements of A at once and then spills: half the speed of 10x2.
    if vector.registers() == 32:
        return {4: (6, 4, 3, 2, 1), 3: (8, 4, 2, 1), 2: (10, 8, 6, 5, 4, 2, 1), 1: (12, 8, 4, 2, 1)}
    return {2: (6, 4, 2, 1), 1: (8, 4, 2, 1)}


def panel_vectors() -> int:
    """The largest number of vectors of columns."""
    return max(row_counts())


def panel_columns() -> int:
    """The width of a panel of B, the columns that one kernel works on."""
    return panel_vectors() * vector.lanes()


def _cycles(rows: int, vectors: int) -> float:
    """What one k costs: two multiply-adds or loads a cycle, and at least the latency of a multiply-add."""
    return max(rows * vectors / 2, (rows + vectors + 1) / 2, 5.0)


@cache
def row_steps(vectors: int) -> tuple[int, ...]:
    """Indexed by the rows that remain, below four times the largest kernel: how many of them to do next.

    The choice is the cheapest way to cut the rows; from more rows than these one takes the largest kernel.
    """
    counts = row_counts()[vectors]
    costs, steps = [0.0], [0]
    for rest in range(1, 4 * counts[0]):
        options = [(costs[rest - n] + _cycles(n, vectors), -n) for n in counts if n <= rest]
        cost, negative = min(options)
        costs.append(cost)
        steps.append(-negative)
    return tuple(steps)


def rows_cycles(rows: int, vectors: int) -> float:
    """What one k of that many rows costs, by the model that chooses how to cut them."""
    steps, cycles = row_steps(vectors), 0.0
    while rows > 0:
        step = steps[rows] if rows < len(steps) else steps[-1]
        many = max(1, (rows - len(steps)) // step)
        cycles += many * _cycles(step, vectors)
        rows -= many * step
    return cycles


@intrinsic
def micro_kernel(
    typing_context: Any,
    rows: types.Type,
    vectors: types.Type,
    a: types.Type,
    row_a: types.Type,
    offset_a: types.Type,
    b: types.Type,
    pitch_b: types.Type,
    c: types.Type,
    row_c: types.Type,
    k: types.Type,
    accumulate: types.Type,
    last_columns: types.Type,
) -> tuple[Any, Emitter]:
    """C[row_c[i] + 4n] (+)= sum over k of A[row_a[i] + offset_a[k]] * B[k * pitch_b + 4n], i < rows, k >= 1.

    row_a, row_c and offset_a are addresses of int64 tables of byte offsets. `rows` is one of
    `row_counts()[vectors]`. n runs over `vectors` vectors; of the last one only `last_columns` columns are
    touched, except that without cheap masks it is read whole, so B must then have been packed.
    """

    def emit(context: Any, builder: ir.IRBuilder, _: Any, arguments: tuple[ir.Value, ...]) -> ir.Value:
        shape = builder.add(builder.mul(arguments[1], I64(64)), arguments[0])
        done = builder.append_basic_block("done")
        switch = builder.switch(shape, done)
        for vector_count, counts in row_counts().items():
            for row_count in counts:
                block = builder.append_basic_block(f"kernel_{row_count}x{vector_count}")
                switch.add_case(I64(64 * vector_count + row_count), block)
                with builder.goto_block(block):
                    builder.call(_kernel(builder.module, row_count, vector_count), arguments[2:])
                    builder.branch(done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    return types.void(*[types.int64] * (ARGUMENTS + 2)), emit


def _kernel(module: ir.Module, rows: int, vectors: int) -> ir.Function:
    """The LLVM function of one micro kernel, defined in the module at the first request."""
    name = f"micro_kernel_{rows}x{vectors}"
    if name in module.globals:
        return module.globals[name]
    function = ir.Function(module, ir.FunctionType(VOID, [I64] * ARGUMENTS), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    function.attributes.add("nounwind")
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    a, row_a, offset_a, b, pitch_b, c, row_c, k, accumulate, last_columns = function.args
    mask = vector.lane_mask(builder, last_columns)
    masks = [None] * (vectors - 1) + [mask]
    a_rows = _table(builder, a, row_a, rows)
    totals = _sum_over_k(builder, a_rows, offset_a, b, pitch_b, k, masks)
    _write(builder, _table(builder, c, row_c, rows), totals, accumulate, masks)
    builder.ret_void()
    return function


def _load_i64(builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    return builder.load(builder.inttoptr(address, POINTER), align=8, typ=I64)


def _table(builder: ir.IRBuilder, base: ir.Value, table: ir.Value, rows: int) -> list[ir.Value]:
    """base + table[i] for i < rows."""
    return [builder.add(base, _load_i64(builder, builder.add(table, I64(8 * i)))) for i in range(rows)]


def _sum_over_k(
    builder: ir.IRBuilder,
    a_rows: list[ir.Value],
    offset_a: ir.Value,
    b: ir.Value,
    pitch_b: ir.Value,
    k: ir.Value,
    masks: list[ir.Value | None],
) -> list[list[ir.Value]]:
    """The loop over k; returns [row][vector]."""
    entry, loop, end = builder.block, builder.append_basic_block("k"), builder.append_basic_block("end")
    offset_end = builder.add(offset_a, builder.mul(k, I64(8)))
    builder.branch(loop)
    builder.position_at_end(loop)
    offset_now, b_now = builder.phi(I64), builder.phi(I64)
    sums = [[builder.phi(vector.vector_type()) for _ in masks] for _ in a_rows]
    totals = _one_k(builder, a_rows, _load_i64(builder, offset_now), b_now, sums, masks)
    offset_next, b_next = builder.add(offset_now, I64(8)), builder.add(b_now, pitch_b)
    phis = [(offset_now, offset_a, offset_next), (b_now, b, b_next)]
    for row_sums, row_totals in zip(sums, totals, strict=True):
        phis += [(phi, vector.zeros(), total) for phi, total in zip(row_sums, row_totals, strict=True)]
    for phi, first, later in phis:
        phi.add_incoming(first, entry)
        phi.add_incoming(later, loop)
    builder.cbranch(builder.icmp_unsigned("!=", offset_next, offset_end), loop, end)
    builder.position_at_end(end)
    return totals


def _one_k(
    builder: ir.IRBuilder,
    a_rows: list[ir.Value],
    offset: ir.Value,
    b: ir.Value,
    sums: list[list[ir.Value]],
    masks: list[ir.Value | None],
) -> list[list[ir.Value]]:
    """sums[i][j] + A[row i, k] * B[k, vector j]."""
    b_vectors = []
    for j, mask in enumerate(masks):
        address = builder.add(b, I64(4 * vector.lanes() * j))
        b_vectors.append(vector.load_vector(builder, address, mask if vector.masks_are_cheap() else None))
    totals = []
    for row, row_sums in zip(a_rows, sums, strict=True):
        element = builder.load(builder.inttoptr(builder.add(row, offset), POINTER), align=4, typ=F32)
        factor = vector.splat(builder, element)
        pairs = zip(b_vectors, row_sums, strict=True)
        totals.append([vector.multiply_add(builder, factor, b_vector, total) for b_vector, total in pairs])
    return totals


def _write(
    builder: ir.IRBuilder,
    c_rows: list[ir.Value],
    totals: list[list[ir.Value]],
    accumulate: ir.Value,
    masks: list[ir.Value | None],
) -> None:
    """Stores the totals, added to what is there if `accumulate` is not 0."""
    with builder.if_else(builder.icmp_signed("!=", accumulate, I64(0))) as (add, replace):
        for branch, adds in ((add, True), (replace, False)):
            with branch:
                for row, row_totals in zip(c_rows, totals, strict=True):
                    for j, (total, mask) in enumerate(zip(row_totals, masks, strict=True)):
                        address = builder.add(row, I64(4 * vector.lanes() * j))
                        if adds:
                            total = builder.fadd(total, vector.load_vector(builder, address, mask))
                        vector.store_vector(builder, total, address, mask)
