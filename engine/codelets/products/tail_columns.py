"""The last columns of a product, where they fill few lanes of a vector.

Where A's elements along k are contiguous, each lane sums a part of k, and the lanes are added by halves. Where A's rows
are contiguous, lanes are rows, and products are added in the order of k, as in the general kernels.
"""

from __future__ import annotations

import numpy as np

from engine.codelets.language import vector
from engine.codelets.language.build import inner
from engine.codelets.language.loops import EmittedLoop
from engine.codelets.language.memory import F32, I64, POINTER, call, load_f32, load_i64, loaded_i64, store_f32
from engine.codelets.language.record import word
from engine.codelets.language.switched import switched
from engine.codelets.products.contract import Block, Operands
from engine.codelets.products.contract_fields import FEWEST_ROWS, MOST_TAIL, Field, Tail
from engine.machine_code.llvm import ir
from engine.machine_code.processor import lanes, registers

LANES = lanes()
VECTOR = 4 * LANES
MOST_VECTORS = FEWEST_ROWS // LANES
"""Most vectors of rows of a kernel."""
SUMS_BYTES = registers() * VECTOR
"""Bytes of scratch for the sums of a kernel, before the packed columns."""
COUNTS = tuple(count for count in (8, 6, 5, 4, 3, 2, 1) if count <= MOST_TAIL)
"""Numbers of columns of the kernels, the largest first."""
STEPS = np.array([0, *(max(each for each in COUNTS if each <= rest) for rest in range(1, MOST_TAIL + 1))], np.int64)
"""Columns of the next kernel, by the number of columns that remain."""


@inner
def tail_columns(parameters: int, block: Block) -> int:
    """The number of last columns of a block that kernels of this module compute."""
    columns, lanes_are = word(parameters, Field.COLUMNS), word(parameters, Field.TAIL)
    few = lanes_are == Tail.COLUMNS or (lanes_are == Tail.ROWS and block.rows < FEWEST_ROWS)
    return 0 if few or block.column + block.columns < columns else columns % LANES


@inner
def pack_tail(at: Operands, block: Block, scratch: int) -> None:
    """Packs the last columns of a block along k, with zeros up to the pitch, if lanes are terms."""
    column, k, k_count = block.column + block.columns, block.k, block.k_count
    tail = tail_columns(at.parameters, block) if word(at.parameters, Field.TAIL) == Tail.TERMS else 0
    stride, offset_b = word(at.parameters, Field.STRIDE_B), word(at.parameters, Field.OFFSET_B) + 8 * k
    pitch = tail_pitch(k_count)
    for n in range(tail):
        source, row = at.b + stride * (column - tail + n), scratch + SUMS_BYTES + pitch * n
        for i in range(k_count):
            store_f32(row + 4 * i, load_f32(source + load_i64(offset_b + 8 * i)))
        for i in range(4 * k_count, pitch, 4):
            store_f32(row + i, 0.0)


def tail_scratch(most_k: int) -> int:
    """Bytes of scratch for blocks of up to `most_k`."""
    return SUMS_BYTES + MOST_TAIL * (most_k // LANES + 1) * VECTOR


@inner
def tail_pitch(k_count: int) -> int:
    """Bytes between packed columns."""
    return (k_count // LANES + 1) * VECTOR


def _write_terms(builder: ir.IRBuilder, columns: int, arguments: tuple[ir.Value, ...]) -> None:
    """Writes the function for some columns, of eight sums or more at a time."""
    rows, *others = arguments
    together = max(2, -(-8 // columns))
    loop = EmittedLoop(builder, "rows", I64(0), rows, I64(together))
    _sum_terms(builder, together, columns, loop.at, rows, *others)
    loop.close()


def _sum_terms(
    builder: ir.IRBuilder,
    together: int,
    columns: int,
    first: ir.Value,
    rows: ir.Value,
    a: ir.Value,
    row_a: ir.Value,
    b: ir.Value,
    k: ir.Value,
    c: ir.Value,
    row_c: ir.Value,
    accumulate: ir.Value,
    scratch: ir.Value,
) -> None:
    """C[row, n] (+)= sum over k of A[row_a[row] + 4k] * B[n * pitch + 4k] for some rows from the first on.

    Beyond the last row that one is read again.
    """
    last = builder.sub(rows, I64(1))
    numbers = [call(builder, "smin.i64", I64, builder.add(first, I64(i)), last) for i in range(together)]
    a_rows = [builder.add(a, loaded_i64(builder, builder.add(row_a, builder.shl(each, I64(3))))) for each in numbers]
    pitch = builder.mul(builder.add(builder.sdiv(k, I64(LANES)), I64(1)), I64(VECTOR))
    b_columns = [builder.add(b, builder.mul(pitch, I64(n))) for n in range(columns)]
    whole = builder.and_(k, I64(-LANES))

    def added(at: ir.Value, sums: list[ir.Value], mask: ir.Value | None) -> list[ir.Value]:
        byte = builder.shl(at, I64(2))
        vectors = [vector.load_vector(builder, builder.add(row, byte), mask) for row in a_rows]
        result = []
        for n, column in enumerate(b_columns):
            terms = vector.load_vector(builder, builder.add(column, byte))
            for one, total in zip(vectors, sums[n * together : (n + 1) * together], strict=True):
                result.append(vector.multiply_add(builder, one, terms, total))
        return result

    loop = EmittedLoop(builder, "terms", I64(0), whole, I64(LANES), [vector.zeros()] * (together * columns), True)
    loop.close(added(loop.at, loop.carried, None))
    sums = added(whole, loop.carried, vector.lane_mask(builder, builder.sub(k, whole)))
    for number, total in enumerate(sums):
        vector.store_vector(builder, total, builder.add(scratch, I64(VECTOR * number)))
    count = call(builder, "smin.i64", I64, builder.sub(rows, first), I64(together))
    stores = EmittedLoop(builder, "stores", I64(0), count, I64(1))
    row = builder.add(c, loaded_i64(builder, builder.add(row_c, builder.shl(builder.add(first, stores.at), I64(3)))))
    for n in range(columns):
        place = builder.add(scratch, builder.mul(builder.add(stores.at, I64(n * together)), I64(VECTOR)))
        _add_element(builder, vector.sum_of_lanes(builder, vector.load_vector(builder, place)), row, n, accumulate)
    stores.close()


def _add_element(builder: ir.IRBuilder, value: ir.Value, row: ir.Value, n: int, accumulate: ir.Value) -> None:
    """Stores element n of a row of C, or adds to it if `accumulate` is not 0."""
    pointer = builder.inttoptr(builder.add(row, I64(4 * n)), POINTER)
    old = builder.load(pointer, align=4, typ=F32)
    added = builder.select(builder.icmp_signed("!=", accumulate, I64(0)), old, F32(0))
    builder.store(builder.fadd(value, added), pointer, align=4)


def _write_rows(builder: ir.IRBuilder, columns: int, arguments: tuple[ir.Value, ...]) -> None:
    """Writes the function for some columns; the last rows are computed with some of those before them."""
    rows, *others = arguments
    vectors = min(MOST_VECTORS, (registers() - 1) // (columns + 1))  # sums and vectors of A, besides one of B
    step = I64(vectors * LANES)
    loop = EmittedLoop(builder, "rows", I64(0), rows, step)
    first = call(builder, "smin.i64", I64, loop.at, builder.sub(rows, step))
    _sum_rows(builder, vectors, columns, loop.at, first, *others)
    loop.close()


def _sum_rows(
    builder: ir.IRBuilder,
    vectors: int,
    columns: int,
    begin: ir.Value,
    first: ir.Value,
    a: ir.Value,
    offset_a: ir.Value,
    b: ir.Value,
    pitch_b: ir.Value,
    k: ir.Value,
    c: ir.Value,
    row_c: ir.Value,
    accumulate: ir.Value,
    scratch: ir.Value,
) -> None:
    """C[row, n] (+)= sum over k of A[4 row + offset_a[k]] * B[k * pitch_b + 4n] for rows in vectors.

    They are computed from row `first` on, and stored from row `begin` on.
    """
    a = builder.add(a, builder.shl(first, I64(2)))
    loop = EmittedLoop(builder, "k", I64(0), k, I64(1), [b, *[vector.zeros()] * (vectors * columns)])
    b, *sums = loop.carried
    line = builder.add(a, loaded_i64(builder, builder.add(offset_a, builder.shl(loop.at, I64(3)))))
    a_vectors = [vector.load_vector(builder, builder.add(line, I64(VECTOR * j))) for j in range(vectors)]
    for n in range(columns):
        element = builder.load(builder.inttoptr(builder.add(b, I64(4 * n)), POINTER), align=4, typ=F32)
        factor = vector.splat(builder, element)
        for j, each in enumerate(a_vectors, n * vectors):
            sums[j] = vector.multiply_add(builder, factor, each, sums[j])
    loop.close([builder.add(b, pitch_b), *sums])
    for j, total in enumerate(sums):
        vector.store_vector(builder, total, builder.add(scratch, I64(VECTOR * j)))
    loop = EmittedLoop(builder, "stores", builder.sub(begin, first), I64(vectors * LANES), I64(1))
    row = builder.add(c, loaded_i64(builder, builder.add(row_c, builder.shl(builder.add(first, loop.at), I64(3)))))
    for n in range(columns):
        place = builder.add(scratch, builder.add(builder.shl(loop.at, I64(2)), I64(VECTOR * vectors * n)))
        value = builder.load(builder.inttoptr(place, POINTER), align=4, typ=F32)
        _add_element(builder, value, row, n, accumulate)
    loop.close()


_multiply_terms = switched("tail_terms", COUNTS, _write_terms)
_multiply_rows = switched("tail_rows", COUNTS, _write_rows)


@inner
def multiply_tail(
    at: Operands,
    tail: int,
    rows: int,
    k: int,
    packed_rows: tuple[int, int, int],
    packed_panel: tuple[int, int],
    c: int,
    row_c: int,
    accumulate: int,
    scratch: int,
) -> None:
    """Multiplies the last `tail` columns as `multiply_panel` does: they begin at the addresses `packed_panel` and `c`.

    `pack_tail` has packed them if lanes are terms.
    """
    (a, row_a, offset_a), (b, pitch_b), packed = packed_rows, packed_panel, scratch + SUMS_BYTES
    done = 0
    while done < tail:
        count, to = STEPS[tail - done], c + 4 * done
        if word(at.parameters, Field.TAIL) == Tail.TERMS:
            column = packed + done * tail_pitch(k)
            _multiply_terms(count, rows, a + load_i64(offset_a), row_a, column, k, to, row_c, accumulate, scratch)
        else:
            first, column = a + load_i64(row_a), b + 4 * done
            _multiply_rows(count, rows, first, offset_a, column, pitch_b, k, to, row_c, accumulate, scratch)
        done += count
