"""Packing of float32 by the bf16x3 split, in the layout that matrix registers read."""

from __future__ import annotations

from engine.codelets.language import vector
from engine.codelets.language.build import inner
from engine.codelets.language.intrinsic import intrinsic
from engine.codelets.language.memory import I32, I64, POINTER, load_i64
from engine.codelets.products.matrix_registers import (
    BLOCK,
    BLOCK_BYTES,
    BLOCK_K,
    K_PAIR,
    ORDER_A,
    ORDER_B,
    REGISTER_BYTES,
    TERMS,
)
from engine.machine_code.llvm import ir

I16 = ir.IntType(16)
WIDE = ir.VectorType(I16, 2 * BLOCK)
MAGNITUDE = 0x7FFFFFFF
SCALE = 2.0**24
"""Factor of both operands, without which the parts of the smallest numbers would be flushed to zero."""
UNSCALE = 1 / SCALE**2
MOST = (127 + 29) << 23
"""The bits of 2**29: sums of the scaled parts of smaller numbers cannot overflow. Infinities and NaN are larger."""
SEEN_BYTES = 4 * BLOCK  # of the vector of the largest magnitudes that were packed


def _all(value: int) -> ir.Constant:
    return ir.Constant(vector.vector_type(I32), [value] * BLOCK)


def _terms(builder: ir.IRBuilder, value: ir.Value) -> list[ir.Value]:
    """Splits into three vectors of bits, whose upper halves are the parts in descending order."""
    terms, rest = [], builder.fmul(value, ir.Constant(vector.vector_type(), [SCALE] * BLOCK))
    for _ in range(TERMS - 1):
        bits = builder.bitcast(rest, vector.vector_type(I32))
        # Rounded to the nearest, so that the omitted products have both signs.
        term = builder.and_(builder.add(bits, _all(0x8000)), _all(-0x10000))
        terms.append(term)
        rest = builder.fsub(rest, builder.bitcast(term, vector.vector_type()))
    return [*terms, builder.bitcast(rest, vector.vector_type(I32))]


def _note(builder: ir.IRBuilder, seen: ir.Value, values: list[ir.Value]) -> ir.Value:
    """Updates the largest magnitude in each lane."""
    for value in values:
        magnitude = builder.and_(builder.bitcast(value, vector.vector_type(I32)), _all(MAGNITUDE))
        seen = builder.select(builder.icmp_unsigned(">", magnitude, seen), magnitude, seen)
    return seen


def _load_seen(builder: ir.IRBuilder, seen: ir.Value) -> ir.Value:
    return builder.load(builder.inttoptr(seen, POINTER), align=4, typ=vector.vector_type(I32))


def _store_seen(builder: ir.IRBuilder, seen: ir.Value, value: ir.Value) -> None:
    builder.store(value, builder.inttoptr(seen, POINTER), align=4)


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
    before = _load_seen(builder, seen)
    entry, loop, rest = builder.block, builder.append_basic_block("blocks"), builder.append_basic_block("rest")
    builder.cbranch(builder.icmp_signed(">", whole, I64(0)), loop, rest)
    builder.position_at_end(loop)
    done, now = builder.phi(I64), builder.phi(vector.vector_type(I32))
    after = _block_of_row(builder, source, done, None, target, now)
    later = builder.add(done, I64(BLOCK_K))
    for phi, first, next_one in ((done, I64(0), later), (now, before, after)):
        phi.add_incoming(first, entry)
        phi.add_incoming(next_one, loop)
    builder.cbranch(builder.icmp_signed("<", later, whole), loop, rest)
    builder.position_at_end(rest)
    found = builder.phi(vector.vector_type(I32))
    found.add_incoming(before, entry)
    found.add_incoming(after, loop)
    _store_seen(builder, seen, found)
    with builder.if_then(builder.icmp_signed("<", whole, count)):
        left = builder.sub(count, whole)
        _store_seen(builder, seen, _block_of_row(builder, source, whole, left, target, found))


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
    entry, loop, rest = builder.block, builder.append_basic_block("columns"), builder.append_basic_block("rest")
    edge, done = builder.append_basic_block("edge"), builder.append_basic_block("done")
    destination = (first, second, target, group_pitch, seen)
    builder.cbranch(builder.icmp_signed(">", whole, I64(0)), loop, rest)
    builder.position_at_end(loop)
    column = builder.phi(I64)
    _block_of_pair(builder, destination, column, None)
    later = builder.add(column, I64(BLOCK))
    column.add_incoming(I64(0), entry)
    column.add_incoming(later, loop)
    builder.cbranch(builder.icmp_signed("<", later, whole), loop, rest)
    builder.position_at_end(rest)
    builder.cbranch(builder.icmp_signed("<", whole, columns), edge, done)
    builder.position_at_end(edge)
    column = builder.phi(I64)
    left = builder.sub(columns, column)
    counts = [builder.select(each, left, I64(0)) for each in present]
    _block_of_pair(builder, destination, column, [vector.lane_mask(builder, count) for count in counts])
    later = builder.add(column, I64(BLOCK))
    column.add_incoming(whole, rest)
    column.add_incoming(later, edge)
    builder.cbranch(builder.icmp_signed("<", later, columns), edge, done)
    builder.position_at_end(done)


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
    _store_seen(builder, seen_of_group, _note(builder, _load_seen(builder, seen_of_group), values))


@intrinsic
def forget(builder: ir.IRBuilder, seen: ir.Value) -> None:
    """Resets the largest magnitudes to zero."""
    _store_seen(builder, seen, _all(0))


@intrinsic
def is_whole_as_bf16x3(builder: ir.IRBuilder, seen: ir.Value) -> ir.Value:
    """Returns 1 if the split can compute the products of all that was packed, else 0."""
    large = builder.icmp_unsigned(">", _load_seen(builder, seen), _all(MOST))
    lanes = builder.bitcast(large, ir.IntType(BLOCK))
    return builder.zext(builder.icmp_unsigned("==", lanes, ir.IntType(BLOCK)(0)), I64)


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
