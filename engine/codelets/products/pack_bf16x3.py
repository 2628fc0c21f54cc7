"""Packing of float32 by the bf16x3 split, in the layout that matrix registers read.

Matrix registers (Intel's AMX): blocks of bfloat16 whose products are summed in float32, 16 x 16 at a time.

Where the processor has them, they do sixteen times as many multiply-adds per cycle as float32 vectors.
"""

from __future__ import annotations

from engine.codelets.language import vector
from engine.codelets.language.build import inner
from engine.codelets.language.intrinsic import intrinsic
from engine.codelets.language.lanes import Lanes
from engine.codelets.language.loops import EmittedLoop
from engine.codelets.language.memory import F32, I32, I64, POINTER, VOID, call, load_i64
from engine.codelets.language.switched import switched
from engine.machine_code.llvm import ir

# Tuned on two cores of a Xeon with AVX-512 and AMX (48 KiB first-level, 2 MiB second-level cache), November 2026;
# rows, columns and k are counts.
BLOCK = 16  # rows of a matrix register, and float32 columns of a matrix register that holds sums
K_BLOCK = 512  # the most k at a time; a multiple of a register's k
ELEMENTS = 1 << 17  # of B, whose parts (768 kB) stay in the second-level cache while rows of A stream; likewise of A
MOST_COLUMNS = 1024  # of B split at a time
I8 = ir.IntType(8)
K_PAIR = 2  # bfloat16 along k that are contiguous, in both operands
BLOCK_K = 32  # bfloat16 in a row of a register
REGISTER_BYTES = 1024
GROUP = 2 * BLOCK  # rows, or columns, that are multiplied at a time: two registers of each
SUM_PITCH = 4 * GROUP
TERMS = 3
LARGE, SMALL, TINY = 0, 1, 2  # the parts of a split number
ORDER_A, ORDER_B = (2, 1, 0), (0, 1, 2)  # their positions in memory, in the order of use
PRODUCTS = ((TINY, LARGE), (SMALL, LARGE), (SMALL, SMALL), (LARGE, SMALL), (LARGE, TINY), (LARGE, LARGE))
"""The parts of A and B to multiply, ordered so that few registers change and small products are added first. The three
products that are left out are together at most 2**-24 of the whole."""
WHOLE = TERMS * 2 * REGISTER_BYTES
"""Bytes of a group's parts for a block of k. After those of the first one is 1 if the split can compute the group, else
0."""
BLOCK_BYTES = WHOLE + 64
"""The parts and a cache line: without it, the parts of a row along k would share two cache sets."""
PAD = 192  # bytes between groups: without it, all of them would share cache sets


def _shapes(module: ir.Module) -> ir.GlobalVariable:
    """The configuration of the matrix registers: all have full size."""
    name = "whole_matrix_registers"
    if name in module.globals:
        return module.globals[name]
    rows = [BLOCK] * 8 + [0] * 8
    row_bytes = [4 * BLOCK, 0] * 8 + [0] * 16
    content = bytes([1, *[0] * 15, *row_bytes, *rows])
    array = ir.ArrayType(I8, len(content))
    shapes = ir.GlobalVariable(module, array, name)
    shapes.linkage, shapes.global_constant, shapes.align = "internal", True, 64
    shapes.initializer = ir.Constant(array, bytearray(content))
    return shapes


@intrinsic
def begin_matrices(builder: ir.IRBuilder) -> None:
    """Configures the matrix registers for this thread."""
    call(builder, "x86.ldtilecfg", VOID, builder.bitcast(_shapes(builder.module), POINTER))


@intrinsic
def end_matrices(builder: ir.IRBuilder) -> None:
    """Releases the matrix registers, so that the operating system need not save them in a context switch."""
    call(builder, "x86.tilerelease", VOID)


def _write_groups(builder: ir.IRBuilder, case: int, arguments: tuple[ir.Value, ...]) -> None:
    """Writes the function for `rows` and `columns` blocks, one or two."""
    (rows, columns), (blocks_of_k, a, b, sums) = divmod(case, 4), arguments
    totals = {(i, j): I8(2 * i + j) for i in range(rows) for j in range(columns)}
    for register in totals.values():
        call(builder, "x86.tilezero", VOID, register)
    loop = EmittedLoop(builder, "k", I64(0), blocks_of_k, I64(1), [a, b])
    a, b = loop.carried
    _one_block_of_k(builder, a, b, rows, columns, totals)
    loop.close([builder.add(each, I64(BLOCK_BYTES)) for each in (a, b)])
    for (i, j), register in totals.items():
        offset = builder.add(sums, I64(SUM_PITCH * BLOCK * i + 4 * BLOCK * j))
        call(builder, "x86.tilestored64", VOID, register, builder.inttoptr(offset, POINTER), I64(SUM_PITCH))


def _one_block_of_k(
    builder: ir.IRBuilder, a: ir.Value, b: ir.Value, rows: int, columns: int, totals: dict[tuple[int, int], ir.Constant]
) -> None:
    registers_a, registers_b = [I8(4), I8(5)][:rows], [I8(6), I8(7)][:columns]
    loaded: tuple[int | None, int | None] = None, None
    for term_a, term_b in PRODUCTS:
        if loaded[0] != term_a:
            _load(builder, registers_a, a, ORDER_A[term_a])
        if loaded[1] != term_b:
            _load(builder, registers_b, b, ORDER_B[term_b])
        loaded = term_a, term_b
        for (i, j), total in totals.items():
            call(builder, "x86.tdpbf16ps", VOID, total, registers_a[i], registers_b[j])


def _load(builder: ir.IRBuilder, registers: list[ir.Constant], base: ir.Value, offset_of_term: int) -> None:
    for number, register in enumerate(registers):
        offset = builder.add(base, I64(REGISTER_BYTES * (2 * offset_of_term + number)))
        call(builder, "x86.tileloadd64", VOID, register, builder.inttoptr(offset, POINTER), I64(4 * BLOCK))


multiply_groups = switched("multiply_groups", (5, 6, 9, 10), _write_groups)
"""`multiply_groups(4 * row_blocks + column_blocks, blocks_of_k, a, b, sums)`: the product of two packed groups.

sums[32, 32] = the product of a group of rows and a group of columns, of one or two blocks each. a, b: bfloat16
[block of k][part][block of rows or columns][16][32]; the 16 are rows of A, or pairs of k of B."""
I16 = ir.IntType(16)
WIDE = ir.VectorType(I16, 2 * BLOCK)
MAGNITUDE = 0x7FFFFFFF
SCALE = 2.0**24
"""Factor of both operands, without which the parts of the smallest numbers would be flushed to zero."""
UNSCALE = 1 / SCALE**2
MOST = (127 + 29) << 23
"""The bits of 2**29: sums of the scaled parts of smaller numbers cannot overflow. Infinities and NaN are larger."""
SEEN_BYTES = 4 * BLOCK  # of the vector of the largest magnitudes that were packed


def _terms(builder: ir.IRBuilder, value: ir.Value) -> list[ir.Value]:
    """Splits into three vectors of bits, whose upper halves are the parts in descending order."""
    terms, rest = [], builder.fmul(value, vector.all_lanes(SCALE, F32))
    for _ in range(TERMS - 1):
        bits = builder.bitcast(rest, vector.vector_type(I32))
        # Rounded to the nearest, so that the omitted products have both signs.
        term = builder.and_(builder.add(bits, vector.all_lanes(0x8000)), vector.all_lanes(-0x10000))
        terms.append(term)
        rest = builder.fsub(rest, builder.bitcast(term, vector.vector_type()))
    return [*terms, builder.bitcast(rest, vector.vector_type(I32))]


def _note(builder: ir.IRBuilder, seen: ir.Value, values: list[ir.Value]) -> ir.Value:
    """Updates the largest magnitude in each lane."""
    for value in values:
        magnitude = builder.and_(builder.bitcast(value, vector.vector_type(I32)), vector.all_lanes(MAGNITUDE))
        seen = builder.select(builder.icmp_unsigned(">", magnitude, seen), magnitude, seen)
    return seen


def _upper_bits(builder: ir.IRBuilder, both: tuple[ir.Value, ...], alternate: bool) -> ir.Value:
    """The upper halves of two vectors: one vector after the other, or lane by lane."""
    odd = range(1, 2 * BLOCK, 2)
    after = [*odd, *(lane + 2 * BLOCK for lane in odd)]
    lanes = [each for lane in odd for each in (lane, lane + 2 * BLOCK)] if alternate else after
    first, second = (builder.bitcast(each, WIDE) for each in both)
    return builder.shuffle_vector(first, second, ir.Constant(ir.VectorType(I32, 2 * BLOCK), lanes))


def _write(
    builder: ir.IRBuilder, values: list[ir.Value], alternate: bool, target: ir.Value, order: tuple[int, ...]
) -> None:
    """Stores the parts of two vectors, each part in its block of the group, at its position in `order`."""
    for number, pair in enumerate(zip(*(_terms(builder, value) for value in values), strict=True)):
        destination = builder.inttoptr(builder.add(target, I64(order[number] * 2 * REGISTER_BYTES)), POINTER)
        builder.store(_upper_bits(builder, pair, alternate), destination, align=64)


@intrinsic
def write_row_of_a(builder: ir.IRBuilder, source: ir.Value, count: ir.Value, target: ir.Value, seen: ir.Value) -> None:
    """Splits and packs `count` float32 along k of one row, padded with zeros to whole blocks."""
    whole = builder.and_(count, I64(-BLOCK_K))
    before = [Lanes(builder, BLOCK).load(seen, "s32")]
    loop = EmittedLoop(builder, "blocks", I64(0), whole, I64(BLOCK_K), before, may_be_empty=True)
    loop.close([_block_of_row(builder, source, loop.at, None, target, loop.carried[0])])
    (found,) = loop.carried
    Lanes(builder, BLOCK).store(found, seen, "s32")
    with builder.if_then(builder.icmp_signed("<", whole, count)):
        left = builder.sub(count, whole)
        Lanes(builder, BLOCK).store(_block_of_row(builder, source, whole, left, target, found), seen, "s32")


def _block(builder: ir.IRBuilder, target: ir.Value, k: ir.Value) -> ir.Value:
    """The address of the block whose first k is `k`."""
    return builder.add(target, builder.mul(k, I64(BLOCK_BYTES // BLOCK_K)))


def _block_of_row(
    builder: ir.IRBuilder, source: ir.Value, k: ir.Value, count: ir.Value | None, target: ir.Value, seen: ir.Value
) -> ir.Value:
    masks = [None, None]
    if count is not None:
        masks = [vector.lane_mask(builder, builder.sub(count, I64(first))) for first in (0, BLOCK)]
    begin = builder.add(source, builder.shl(k, I64(2)))
    addresses = (builder.add(begin, I64(4 * first)) for first in (0, BLOCK))
    values = [vector.load_vector(builder, address, mask) for address, mask in zip(addresses, masks, strict=True)]
    _write(builder, values, False, _block(builder, target, k), ORDER_A)
    return _note(builder, seen, values)


@intrinsic
def write_pair_of_b(
    builder: ir.IRBuilder,
    first: ir.Value,
    second: ir.Value,
    columns: ir.Value,
    target: ir.Value,
    group_pitch: ir.Value,
    seen: ir.Value,
) -> None:
    """Splits and packs `columns` columns of two rows of B; a row at address 0 counts as zeros.

    Groups of columns are `group_pitch` bytes apart, and their vectors of largest magnitudes SEEN_BYTES apart.
    """
    present = [builder.icmp_signed("!=", each, I64(0)) for each in (first, second)]
    whole = builder.select(builder.and_(*present), builder.and_(columns, I64(-BLOCK)), I64(0))
    destination = (first, second, target, group_pitch, seen)
    loop = EmittedLoop(builder, "columns", I64(0), whole, I64(BLOCK), may_be_empty=True)
    _block_of_pair(builder, destination, loop.at, None)
    loop.close()
    edge = EmittedLoop(builder, "edge", whole, columns, I64(BLOCK), may_be_empty=True)
    left = builder.sub(columns, edge.at)
    counts = [builder.select(each, left, I64(0)) for each in present]
    _block_of_pair(builder, destination, edge.at, [vector.lane_mask(builder, count) for count in counts])
    edge.close()


def _block_of_pair(
    builder: ir.IRBuilder, destination: tuple[ir.Value, ...], column: ir.Value, masks: list[ir.Value] | None
) -> None:
    first, second, target, group_pitch, seen = destination
    offset = builder.shl(column, I64(2))
    rows = (builder.add(each, offset) for each in (first, second))
    values = [vector.load_vector(builder, row, mask) for row, mask in zip(rows, masks or [None, None], strict=True)]
    group = builder.lshr(column, I64(5))
    half = builder.and_(builder.lshr(column, I64(4)), I64(1))
    into = builder.add(target, builder.add(builder.mul(group, group_pitch), builder.mul(half, I64(REGISTER_BYTES))))
    _write(builder, values, True, into, ORDER_B)
    seen_of_group = builder.add(seen, builder.mul(group, I64(SEEN_BYTES)))
    Lanes(builder, BLOCK).store(
        _note(builder, Lanes(builder, BLOCK).load(seen_of_group, "s32"), values), seen_of_group, "s32"
    )


@intrinsic
def forget(builder: ir.IRBuilder, seen: ir.Value) -> None:
    """Resets the largest magnitudes to zero."""
    Lanes(builder, BLOCK).store(vector.all_lanes(0), seen, "s32")


@intrinsic
def is_whole_as_bf16x3(builder: ir.IRBuilder, seen: ir.Value) -> ir.Value:
    """Returns 1 if the split can compute the products of all that was packed, else 0."""
    large = builder.icmp_unsigned(">", Lanes(builder, BLOCK).load(seen, "s32"), vector.all_lanes(MOST))
    lanes = builder.bitcast(large, ir.IntType(BLOCK))
    return builder.zext(builder.icmp_unsigned("==", lanes, ir.IntType(BLOCK)(0)), I64)


@inner
def whole_blocks(k: int) -> int:
    """The number of blocks of registers that hold this many k."""
    return (k + BLOCK_K - 1) // BLOCK_K


@inner
def groups_of(count: int) -> int:
    """The number of groups that hold this many rows or columns."""
    return (count + GROUP - 1) // GROUP


@inner
def group_pitch(k: int) -> int:
    """Bytes between packed groups for this many k."""
    return whole_blocks(k) * BLOCK_BYTES + PAD


def parts_bytes(columns: int, k: int) -> int:
    """Bytes of the parts of a right operand in groups of columns."""
    groups, blocks = -(-columns // GROUP), -(-k // BLOCK_K)
    return groups * (blocks * BLOCK_BYTES + PAD)


@inner
def split_rows_of_a(a: int, row_a: int, rows: int, k: int, target: int, seen: int) -> None:
    """Packs up to 32 rows, A[row_a[m] + 4 k]."""
    for m in range(rows):
        source = a + load_i64(row_a + 8 * m)
        write_row_of_a(source, k, target + m // BLOCK * REGISTER_BYTES + m % BLOCK * (4 * BLOCK), seen)


@inner
def split_rows_of_b(b: int, offset_b: int, k: int, columns: int, target: int, group_pitch: int, seen: int) -> None:
    """Packs columns, B[offset_b[k] + 4 n], in groups of 32 that are `group_pitch` bytes apart."""
    for at in range(0, (k + BLOCK_K - 1) // BLOCK_K * BLOCK_K, K_PAIR):
        first = b + load_i64(offset_b + 8 * at) if at < k else 0
        second = b + load_i64(offset_b + 8 * (at + 1)) if at + 1 < k else 0
        row = target + at // BLOCK_K * BLOCK_BYTES + at % BLOCK_K // K_PAIR * (4 * BLOCK)
        write_pair_of_b(first, second, columns, row, group_pitch, seen)
