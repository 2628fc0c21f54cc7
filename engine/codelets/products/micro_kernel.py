"""The micro kernels: a few rows of C by a few vectors of columns, kept in registers along all of k."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cache
from typing import Any

from engine.codelets.language import vector
from engine.codelets.language.build import Library
from engine.codelets.language.intrinsic import intrinsic
from engine.codelets.language.memory import F32, I64, POINTER, VOID, loaded_i64, places, prefetch_at
from engine.machine_code.llvm import ir
from engine.machine_code.processor import lanes, masks_are_cheap, registers

# a, row_a, offset_a, b, pitch_b, c, row_c, k, accumulate, columns of the last vector, blocks, and addresses to prefetch
ARGUMENTS = 15
LAST_COLUMNS = 9  # its position
LINE = 64  # bytes of a cache line
AS_HALF = 2  # for `accumulate`, in place of 0 or 1: C is overwritten by 16-bit floats
WHOLE = 32  # added to the number of a kernel whose last vector is whole; more than any kernel's rows


@cache
def row_counts() -> dict[int, tuple[int, ...]]:
    """Numbers of rows that have kernels, in descending order, by the number of vectors of columns.

    The largest number leaves registers for B and for elements of A; smaller kernels serve the remaining rows.
    """
    # 12x2 would fit too, but LLVM loads all elements of A at once and then spills: half the speed of 10x2.
    if registers() == 32:
        return {4: (6, 4, 3, 2, 1), 3: (8, 4, 2, 1), 2: (10, 8, 6, 5, 4, 2, 1), 1: (12, 8, 4, 2, 1)}
    return {2: (6, 4, 2, 1), 1: (8, 4, 2, 1)}


def panel_vectors() -> int:
    """The largest number of vectors of columns that a kernel has."""
    return max(row_counts())


def panel_columns() -> int:
    """The width of a panel of B, the columns that one kernel works on."""
    return panel_vectors() * lanes()


def _cycles(rows: int, vectors: int) -> float:
    """Estimates the cycles of one k: two multiply-adds or loads a cycle, but at least the latency of a multiply-add."""
    return max(rows * vectors / 2, (rows + vectors + 1) / 2, 5.0)


@cache
def row_steps(vectors: int) -> tuple[int, ...]:
    """Rows of the next kernel, indexed by the number of rows that remain, below four times the largest kernel's.

    The kernels partition the rows at the least cost; if more rows remain, the largest kernel is used.
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
    """Estimates the cycles of one k for `rows` rows, by the model that chooses how to divide them."""
    steps, cycles = row_steps(vectors), 0.0
    while rows > 0:
        step = steps[rows] if rows < len(steps) else steps[-1]
        many = max(1, (rows - len(steps)) // step)
        cycles += many * _cycles(step, vectors)
        rows -= many * step
    return cycles


@cache
def micro_kernels(store: str, pairs: bool = False, right: str = "f32") -> Any:
    """Makes the intrinsic of the kernels, which can also store the element type `store`, if `accumulate` is AS_HALF.

    With `pairs` each element of A and B is a pair of bf16, neighbours along k. B's elements are of type `right` in
    memory. If that is not float32, they are widened as they are loaded, and packed: instead of prefetching, row k of B
    is stored at ahead + k * pitch_ahead, in whole vectors with zeros in the lanes beyond the last column.
    """

    @intrinsic
    def micro_kernel(builder: ir.IRBuilder, rows: ir.Value, vectors: ir.Value, *arguments: ir.Value) -> None:
        """`micro_kernel(rows, vectors, a, row_a, offset_a, b, pitch_b, c, row_c, k, accumulate, last_columns, blocks,
        ahead, second_ahead, pitch_ahead, blocks_ahead)`.

        C[row_c[i] + size * n] (+)= sum over k of A[row_a[i] + offset_a[k]] * B[k * pitch_b + 4n], k >= 1.

        i < rows * blocks. row_a, row_c and offset_a are addresses of int64 tables of byte offsets. `rows` is one of
        `row_counts()[vectors]`, blocks at least 1. n runs over `vectors` vectors; of the last vector only
        `last_columns` columns are accessed, except that without cheap masks it is read whole, so B must have been
        packed.

        Kernels of as many whole vectors as a panel has prefetch, with each k of block i < blocks_ahead, the lines at
        ahead + i * 2 * second_ahead + k * pitch_ahead + (0 or second_ahead), which are packed next.
        """
        whole = builder.icmp_signed("==", arguments[LAST_COLUMNS], I64(lanes()))
        shape = builder.add(builder.mul(vectors, I64(64)), rows)
        shape = builder.add(shape, builder.select(whole, I64(WHOLE), I64(0)))
        done = builder.append_basic_block("done")
        switch = builder.switch(shape, done)
        for vector_count, row_count, masked in kernel_shapes(right):
            block = builder.append_basic_block(f"kernel_{row_count}x{vector_count}")
            switch.add_case(I64(64 * vector_count + (0 if masked else WHOLE) + row_count), block)
            with builder.goto_block(block):
                kernel = _declared(builder.module, row_count, vector_count, masked, store, pairs, right)
                builder.call(kernel, arguments)
                builder.branch(done)
        builder.position_at_end(done)

    return micro_kernel


def kernel_shapes(right: str = "f32") -> list[tuple[int, int, bool]]:
    """Vectors, rows, and whether the last vector is masked, of each kernel; kernels that pack B have whole panels."""
    if right != "f32":
        return [(panel_vectors(), rows, False) for rows in row_counts()[panel_vectors()]]
    counts = row_counts().items()
    return [(vectors, rows, masked) for vectors, each in counts for rows in each for masked in (False, True)]


@cache
def library(store: str, pairs: bool = False, right: str = "f32") -> Library:
    """The library of `micro_kernels` of the same arguments, which the codelets that call them need."""

    def text() -> str:
        module = ir.Module()
        for vectors, rows, masked in kernel_shapes(right):
            _kernel(module, rows, vectors, masked, store, pairs, right)
        return str(module)

    names = (_name(rows, vectors, masked, store, pairs, right) for vectors, rows, masked in kernel_shapes(right))
    return Library(f"micro_kernels_{store}" + _suffix(pairs, right), tuple(names), text)


def _name(rows: int, vectors: int, masked: bool, store: str, pairs: bool, right: str) -> str:
    return f"micro_kernel_{rows}x{vectors}_{store}" + _suffix(pairs, right) + "_masked" * masked


def _suffix(pairs: bool, right: str) -> str:
    return "_pairs" * pairs + f"_by_{right}" * (right != "f32")


def _declared(
    module: ir.Module, rows: int, vectors: int, masked: bool, store: str, pairs: bool, right: str
) -> ir.Function:
    """The LLVM function of one micro kernel, declared in the module on first use."""
    name = _name(rows, vectors, masked, store, pairs, right)
    if name in module.globals:
        return module.globals[name]
    function = ir.Function(module, ir.FunctionType(VOID, [I64] * ARGUMENTS), name)
    function.attributes.add("nounwind")
    return function


def _kernel(module: ir.Module, rows: int, vectors: int, masked: bool, store: str, pairs: bool, right: str) -> None:
    """Defines one micro kernel in the module."""
    function = _declared(module, rows, vectors, masked, store, pairs, right)
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    a, row_a, offset_a, b, pitch_b, c, row_c, k, accumulate, last_columns, blocks, *prefetched = function.args
    # A masked load also costs the issue slot of a multiply-add.
    masks = [None] * (vectors - 1) + [vector.lane_mask(builder, last_columns) if masked else None]
    entry, loop, done = builder.block, builder.append_basic_block("rows"), builder.append_basic_block("done")
    builder.branch(loop)
    builder.position_at_end(loop)
    phis = row_a_now, row_c_now, left, ahead, left_ahead = [builder.phi(I64) for _ in range(5)]
    a_rows = places(builder, a, row_a_now, rows)
    lines = None
    if right != "f32":
        lines = prefetched[:3]
    elif vectors == panel_vectors() and not masked:  # with a mask as well, LLVM would spill sums
        wanted = builder.icmp_signed(">", left_ahead, I64(0))
        lines = builder.select(wanted, ahead, I64(0)), prefetched[1], prefetched[2]
    _prefetch_for_writing(builder, places(builder, c, row_c_now, rows), 4 * lanes() * vectors)
    totals = _sum_over_k(builder, a_rows, offset_a, b, pitch_b, k, masks, (pairs, right), lines)
    c_rows = places(builder, c, row_c_now, rows)
    if store == "f32":
        _add_or_write(builder, c_rows, totals, accumulate, masks)
    else:
        with builder.if_else(builder.icmp_signed("==", accumulate, I64(AS_HALF))) as (half, floats):
            with half:
                _write(builder, c_rows, totals, masks, store)
            with floats:
                _add_or_write(builder, c_rows, totals, accumulate, masks)
    steps = I64(8 * rows), I64(8 * rows), I64(-1), builder.shl(prefetched[1], I64(1)), I64(-1)
    later = [builder.add(phi, step) for phi, step in zip(phis, steps, strict=True)]
    for phi, first, following in zip(phis, (row_a, row_c, blocks, prefetched[0], prefetched[3]), later, strict=True):
        phi.add_incoming(first, entry)
        phi.add_incoming(following, builder.block)
    builder.cbranch(builder.icmp_signed(">", later[2], I64(0)), loop, done)
    builder.position_at_end(done)
    builder.ret_void()


def _prefetch_for_writing(builder: ir.IRBuilder, rows: list[ir.Value], size: int) -> None:
    """Prefetches the first `size` bytes of each row of C, which the sums along k leave time to fetch."""
    for row, offset in itertools.product(rows, range(0, size, LINE)):
        prefetch_at(builder, builder.add(row, I64(offset)), writes=True)


def k_unroll(vectors: int) -> int:
    """The number of k in one iteration of the loop: two if enough registers are left."""
    return 2 if vectors == 4 else 1


@dataclass
class _State:
    """Values that change along k: addresses of A's offset, B's row and the line to prefetch; sums [row][vector]."""

    offset: ir.Value
    b: ir.Value
    line: ir.Value
    sums: list[list[ir.Value]]

    def values(self) -> list[ir.Value]:
        return [self.offset, self.b, self.line, *(each for row in self.sums for each in row)]


def _phis(builder: ir.IRBuilder, rows: int, vectors: int) -> _State:
    sums = [[builder.phi(vector.vector_type()) for _ in range(vectors)] for _ in range(rows)]
    return _State(builder.phi(I64), builder.phi(I64), builder.phi(I64), sums)


def _comes_from(phis: _State, state: _State, block: ir.Block) -> None:
    for phi, value in zip(phis.values(), state.values(), strict=True):
        phi.add_incoming(value, block)


def _sum_over_k(
    builder: ir.IRBuilder,
    a_rows: list[ir.Value],
    offset_a: ir.Value,
    b: ir.Value,
    pitch_b: ir.Value,
    k: ir.Value,
    masks: list[ir.Value | None],
    operands: tuple[bool, str],
    lines: tuple[ir.Value, ...] | None,
) -> list[list[ir.Value]]:
    """Emits the loop over k, one or two k an iteration and the last k alone if need be; returns the sums [row][vector].

    `operands`: whether A and B consist of pairs, and B's element type.
    """
    rows, vectors = len(a_rows), len(masks)
    unroll = k_unroll(vectors)
    entry, loop, rest = builder.block, builder.append_basic_block("k"), builder.append_basic_block("rest")
    first_line = I64(0) if lines is None else lines[0]
    start = _State(offset_a, b, first_line, [[vector.zeros()] * vectors for _ in range(rows)])
    offset_end = builder.add(offset_a, builder.mul(builder.and_(k, I64(-unroll)), I64(8)))
    builder.cbranch(builder.icmp_signed(">=", k, I64(unroll)), loop, rest)
    builder.position_at_end(loop)
    state = phis = _phis(builder, rows, vectors)
    for _ in range(unroll):
        state = _one_k(builder, a_rows, state, pitch_b, masks, *operands, lines)
    if lines is not None and operands[1] == "f32":
        state.line = _prefetched(builder, state.line, lines, unroll)
    end_of_loop = builder.block
    _comes_from(phis, start, entry)
    _comes_from(phis, state, end_of_loop)
    builder.cbranch(builder.icmp_unsigned("!=", state.offset, offset_end), loop, rest)
    builder.position_at_end(rest)
    summed = _phis(builder, rows, vectors)
    _comes_from(summed, start, entry)
    _comes_from(summed, state, end_of_loop)
    if unroll == 1:
        return summed.sums
    last, end = builder.append_basic_block("last"), builder.append_basic_block("end")
    builder.cbranch(builder.trunc(k, ir.IntType(1)), last, end)
    builder.position_at_end(last)
    state = _one_k(builder, a_rows, summed, pitch_b, masks, *operands, lines)
    builder.branch(end)
    builder.position_at_end(end)
    phis = _phis(builder, rows, vectors)
    _comes_from(phis, summed, rest)
    _comes_from(phis, state, last)
    return phis.sums


def _prefetched(builder: ir.IRBuilder, line: ir.Value, lines: tuple[ir.Value, ...], count: int) -> ir.Value:
    """Prefetches the lines for `count` k, if the first address is not 0; returns the next address.

    The prefetches have their own block: in the multiply-adds' block, LLVM would move all loads first, and spill sums.
    """
    _, second, pitch = lines
    start, following = builder.block, line
    with builder.if_then(builder.icmp_signed("!=", line, I64(0)), likely=False):
        for _ in range(count):
            for each in (following, builder.add(following, second)):
                prefetch_at(builder, each, locality=2)
            following = builder.add(following, pitch)
        end = builder.block
    phi = builder.phi(I64)
    phi.add_incoming(line, start)
    phi.add_incoming(following, end)
    return phi


def _one_k(
    builder: ir.IRBuilder,
    a_rows: list[ir.Value],
    state: _State,
    pitch_b: ir.Value,
    masks: list[ir.Value | None],
    pairs: bool,
    right: str,
    lines: tuple[ir.Value, ...] | None,
) -> _State:
    """Adds A[row i, k] * B[k, vector j] to sums[i][j]; packs B's vectors if they are not float32."""
    multiply_add = vector.multiply_add_pairs if pairs else vector.multiply_add
    offset = loaded_i64(builder, state.offset)
    b_vectors = []
    for j, mask in enumerate(masks):
        address = builder.add(state.b, I64(vector.BYTES[right] * lanes() * j))
        b_vectors.append(vector.load_vector(builder, address, mask if masks_are_cheap() else None, right))
    line = state.line
    if right != "f32":
        assert lines is not None
        for j, b_vector in enumerate(b_vectors):
            vector.store_vector(builder, b_vector, builder.add(line, I64(4 * lanes() * j)))
        line = builder.add(line, lines[2])
    totals = []
    for row, row_sums in zip(a_rows, state.sums, strict=True):
        element = builder.load(builder.inttoptr(builder.add(row, offset), POINTER), align=4, typ=F32)
        factor = vector.splat(builder, element)
        operands = zip(b_vectors, row_sums, strict=True)
        totals.append([multiply_add(builder, factor, b_vector, total) for b_vector, total in operands])
    return _State(builder.add(state.offset, I64(8)), builder.add(state.b, pitch_b), line, totals)


def _add_or_write(
    builder: ir.IRBuilder,
    c_rows: list[ir.Value],
    totals: list[list[ir.Value]],
    accumulate: ir.Value,
    masks: list[ir.Value | None],
) -> None:
    """Stores the totals, or adds them to C if `accumulate` is not 0."""
    with builder.if_else(builder.icmp_signed("!=", accumulate, I64(0))) as (add, replace):
        with add:
            _write(builder, c_rows, totals, masks, adds=True)
        with replace:
            _write(builder, c_rows, totals, masks)


def _write(
    builder: ir.IRBuilder,
    c_rows: list[ir.Value],
    totals: list[list[ir.Value]],
    masks: list[ir.Value | None],
    element_type: str = "f32",
    adds: bool = False,
) -> None:
    """Stores the totals, or adds them to C."""
    for row, row_totals in zip(c_rows, totals, strict=True):
        for j, (total, mask) in enumerate(zip(row_totals, masks, strict=True)):
            address = builder.add(row, I64(vector.BYTES[element_type] * lanes() * j))
            if adds:
                total = builder.fadd(total, vector.load_vector(builder, address, mask))
            vector.store_vector(builder, total, address, mask, element_type)
