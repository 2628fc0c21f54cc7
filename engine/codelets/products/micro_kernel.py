"""The micro kernels: a few rows of C by a few vectors of columns, kept in registers along all of k."""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any, NamedTuple

from engine.codelets.language import vector
from engine.codelets.language.build import Library
from engine.codelets.language.intrinsic import intrinsic
from engine.codelets.language.loops import EmittedLoop
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


def vectors_cycles(vectors: int) -> float:
    """Estimates the cycles of one k for a row of so many vectors, by the same model."""
    rows = row_counts()[vectors][0] if vectors else 1
    return _cycles(rows, vectors) / rows if vectors else 0.0


class MicroKernel(NamedTuple):
    """One of the kernels: a few rows of C by a few vectors of columns, the last of which may be masked.

    It can also store the element type `store`. With `pairs` each element of A and B is a pair of bf16, neighbours along
    k. B's elements are of type `right` in memory. If that is not float32, they are widened as they are loaded, and
    packed: instead of prefetching, row k of B is stored at ahead + k * pitch_ahead, in whole vectors with zeros in the
    lanes beyond the last column.
    """

    rows: int
    vectors: int
    masked: bool
    store: str
    pairs: bool
    right: str

    @property
    def name(self) -> str:
        return f"micro_kernel_{self.rows}x{self.vectors}_{self.store}" + self.suffix + "_masked" * self.masked

    @property
    def suffix(self) -> str:
        return "_pairs" * self.pairs + f"_by_{self.right}" * self.packs

    @property
    def packs(self) -> bool:
        return self.right != "f32"

    @property
    def k_unroll(self) -> int:
        """The number of k in one iteration of the loop: two if enough registers are left."""
        return 2 if self.vectors == 4 else 1

    def declared(self, module: ir.Module) -> ir.Function:
        """The LLVM function, declared in the module on first use."""
        if self.name in module.globals:
            return module.globals[self.name]
        function = ir.Function(module, ir.FunctionType(VOID, [I64] * ARGUMENTS), self.name)
        function.attributes.add("nounwind")
        return function


@cache
def kernels_of(store: str, pairs: bool = False, right: str = "f32") -> tuple[MicroKernel, ...]:
    """The kernels of these types; those that pack B have whole panels."""
    if right != "f32":
        vectors = panel_vectors()
        return tuple(MicroKernel(rows, vectors, False, store, pairs, right) for rows in row_counts()[vectors])
    sizes = ((rows, vectors) for vectors, counts in row_counts().items() for rows in counts)
    return tuple(MicroKernel(*size, masked, store, pairs, right) for size in sizes for masked in (False, True))


@cache
def micro_kernels(store: str, pairs: bool = False, right: str = "f32") -> Any:
    """Makes the intrinsic that calls one of `kernels_of` these types."""

    @intrinsic
    def micro_kernel(builder: ir.IRBuilder, rows: ir.Value, vectors: ir.Value, *arguments: ir.Value) -> None:
        """`micro_kernel(rows, vectors, a, row_a, offset_a, b, pitch_b, c, row_c, k, accumulate, last_columns, blocks,
        ahead, second_ahead, pitch_ahead, blocks_ahead)`.

        C[row_c[i] + size * n] (+)= sum over k of A[row_a[i] + offset_a[k]] * B[k * pitch_b + 4n], k >= 1.

        i < rows * blocks. row_a, row_c and offset_a are addresses of int64 tables of byte offsets. `rows` is one of
        `row_counts()[vectors]`, blocks at least 1. n runs over `vectors` vectors; of the last vector only
        `last_columns` columns are accessed, except that without cheap masks it is read whole, so B must have been
        packed. C is of type `store` if `accumulate` is AS_HALF.

        Kernels of as many whole vectors as a panel has prefetch, with each k of block i < blocks_ahead, the lines at
        ahead + i * 2 * second_ahead + k * pitch_ahead + (0 or second_ahead), which are packed next.
        """
        whole = builder.icmp_signed("==", arguments[LAST_COLUMNS], I64(lanes()))
        shape = builder.add(builder.mul(vectors, I64(64)), rows)
        shape = builder.add(shape, builder.select(whole, I64(WHOLE), I64(0)))
        done = builder.append_basic_block("done")
        switch = builder.switch(shape, done)
        for kernel in kernels_of(store, pairs, right):
            block = builder.append_basic_block(f"kernel_{kernel.rows}x{kernel.vectors}")
            switch.add_case(I64(64 * kernel.vectors + (0 if kernel.masked else WHOLE) + kernel.rows), block)
            with builder.goto_block(block):
                builder.call(kernel.declared(builder.module), arguments)
                builder.branch(done)
        builder.position_at_end(done)

    return micro_kernel


@cache
def library(store: str, pairs: bool = False, right: str = "f32") -> Library:
    """The library of `micro_kernels` of the same arguments, which the codelets that call them need."""
    kernels = kernels_of(store, pairs, right)

    def text() -> str:
        module = ir.Module()
        for kernel in kernels:
            define(module, kernel)
        return str(module)

    return Library(f"micro_kernels_{store}" + kernels[0].suffix, text)


def define(module: ir.Module, kernel: MicroKernel) -> None:
    """Defines a micro kernel in the module."""
    function, rows, store = kernel.declared(module), kernel.rows, kernel.store
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    a, row_a, offset_a, b, pitch_b, c, row_c, k, accumulate, last_columns, blocks, *prefetched = function.args
    # A masked load also costs the issue slot of a multiply-add.
    masks = [None] * (kernel.vectors - 1) + [vector.lane_mask(builder, last_columns) if kernel.masked else None]
    end = builder.add(row_a, builder.mul(blocks, I64(8 * rows)))
    loop = EmittedLoop(builder, "rows", row_a, end, I64(8 * rows), (row_c, prefetched[0], prefetched[3]))
    row_c, ahead, left_ahead = loop.carried
    a_rows = places(builder, a, loop.at, rows)
    lines = None
    if kernel.packs:
        lines = prefetched[:3]
    elif kernel.vectors == panel_vectors() and not kernel.masked:  # with a mask as well, LLVM would spill sums
        wanted = builder.icmp_signed(">", left_ahead, I64(0))
        lines = builder.select(wanted, ahead, I64(0)), prefetched[1], prefetched[2]
    _prefetch_for_writing(builder, places(builder, c, row_c, rows), 4 * lanes() * kernel.vectors)
    totals = _sum_over_k(builder, kernel, a_rows, offset_a, b, pitch_b, k, masks, lines)
    c_rows = places(builder, c, row_c, rows)
    if store == "f32":
        add_or_write(builder, c_rows, totals, accumulate, masks)
    else:
        with builder.if_else(builder.icmp_signed("==", accumulate, I64(AS_HALF))) as (half, floats):
            with half:
                _write(builder, c_rows, totals, masks, store)
            with floats:
                add_or_write(builder, c_rows, totals, accumulate, masks)
    steps = I64(8 * rows), builder.shl(prefetched[1], I64(1)), I64(-1)
    loop.close([builder.add(each, step) for each, step in zip(loop.carried, steps, strict=True)])
    builder.ret_void()


def _prefetch_for_writing(builder: ir.IRBuilder, rows: list[ir.Value], size: int) -> None:
    """Prefetches the first `size` bytes of each row of C, which the sums along k leave time to fetch."""
    for row, offset in itertools.product(rows, range(0, size, LINE)):
        prefetch_at(builder, builder.add(row, I64(offset)), writes=True)


def _sum_over_k(
    builder: ir.IRBuilder,
    kernel: MicroKernel,
    a_rows: list[ir.Value],
    offset_a: ir.Value,
    b: ir.Value,
    pitch_b: ir.Value,
    k: ir.Value,
    masks: list[ir.Value | None],
    lines: tuple[ir.Value, ...] | None,
) -> list[list[ir.Value]]:
    """Emits the loop over k, one or two k an iteration and the last k alone if need be; returns the sums [row][vector].

    The state of the loop has the address of B's row, that of a line to prefetch or of a packed row, and the sums.
    """
    unroll = kernel.k_unroll

    def one_k(offset: ir.Value, state: list[ir.Value]) -> list[ir.Value]:
        return _one_k(builder, kernel, a_rows, offset, state, pitch_b, masks, lines)

    state = [b, I64(0) if lines is None else lines[0], *[vector.zeros()] * (kernel.rows * kernel.vectors)]
    whole = builder.add(offset_a, builder.mul(builder.and_(k, I64(-unroll)), I64(8)))
    loop = EmittedLoop(builder, "k", offset_a, whole, I64(8 * unroll), state, may_be_empty=True)
    state = loop.carried
    for number in range(unroll):
        state = one_k(builder.add(loop.at, I64(8 * number)), state)
    if lines is not None and not kernel.packs:
        state[1] = _prefetched(builder, state[1], lines, unroll)
    loop.close(state)
    if unroll > 1:
        end = builder.add(offset_a, builder.mul(k, I64(8)))
        last = EmittedLoop(builder, "last", whole, end, I64(8), loop.carried, may_be_empty=True)
        last.close(one_k(whole, last.carried))
        loop = last
    sums = loop.carried[2:]
    return [sums[at : at + kernel.vectors] for at in range(0, len(sums), kernel.vectors)]


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
    kernel: MicroKernel,
    a_rows: list[ir.Value],
    offset: ir.Value,
    state: list[ir.Value],
    pitch_b: ir.Value,
    masks: list[ir.Value | None],
    lines: tuple[ir.Value, ...] | None,
) -> list[ir.Value]:
    """Adds A[row i, k] * B[k, vector j] to sums[i][j]; packs B's vectors if they are not float32. Returns the state."""
    multiply_add = vector.multiply_add_pairs if kernel.pairs else vector.multiply_add
    b, line, *sums = state
    offset_a = loaded_i64(builder, offset)
    b_vectors = []
    for j, mask in enumerate(masks):
        address = builder.add(b, I64(vector.BYTES[kernel.right] * lanes() * j))
        b_vectors.append(vector.load_vector(builder, address, mask if masks_are_cheap() else None, kernel.right))
    if kernel.packs:
        assert lines is not None
        for j, b_vector in enumerate(b_vectors):
            vector.store_vector(builder, b_vector, builder.add(line, I64(4 * lanes() * j)))
        line = builder.add(line, lines[2])
    for i, row in enumerate(a_rows):
        element = builder.load(builder.inttoptr(builder.add(row, offset_a), POINTER), align=4, typ=F32)
        factor = vector.splat(builder, element)
        for j, b_vector in enumerate(b_vectors, kernel.vectors * i):
            sums[j] = multiply_add(builder, factor, b_vector, sums[j])
    return [builder.add(b, pitch_b), line, *sums]


def add_or_write(
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
