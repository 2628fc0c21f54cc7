"""HLO sort, by the order of one operand's elements or by any comparator; all operands are permuted alike.

A unit is a row: the elements along the sorted dimension at one position of the others. It sorts entries, which
hold an element's index, and then copies each operand's elements in their order. With a key, entries are
radix-sorted (few are inserted); where only the first `limit` are needed, entries behind them are dropped early.
With a comparator, `compare(table, i, j, answer)` called by address, entries are merged. Both are stable.

Parameters (int64 words): the header `Sort`, then for each operand `SortOperand`.
"""

from __future__ import annotations

from math import prod

from engine.codelets.host.rows import copy_bytes
from engine.codelets.language.build import codelet, inner
from engine.codelets.language.encoded import Encoded
from engine.codelets.language.memory import call_code, load_i8, load_i16, load_i64, store_i8, store_i16, store_i64
from engine.codelets.language.record import Address, Record, block, word
from engine.codelets.language.scratch import after, space_of
from engine.codelets.rows.index_walk import load_index
from engine.ir.shape import FLOATS, SIGNED, Shape
from engine.machine_code.abi import RESERVED_SCRATCH
from engine.program.work.sorting import SortKey, SortWork

LOWEST = -(2**63)
NUMBER_BITS = 31  # of the element's number in a packed entry
NUMBER_MASK = 2**NUMBER_BITS - 1
DIGITS = 256
COUNTS_BYTES = 8 * DIGITS
INSERTED = 48  # entries up to which insertion is faster than counting digits


class Sort(Record):
    """The header of the parameters."""

    inner: int  # adjacent rows are one element apart, INNER of them
    length: int  # of a row
    limit: int  # elements of a row that are written
    key: int = 0  # number of the operand that is compared, if any
    zero: int = 0  # replacement of the lowest signed bits, which are -0 of a float
    inverted: int = 0  # bits that are inverted where the sign bit is set
    flip: int = 0  # bits that are always inverted
    capacity: int = 0  # entries of each of the two buffers in scratch
    comparator: Address = 0
    operands: int


class SortOperand(Record):
    """The words of each operand."""

    source: Address = 0
    target: Address = 0
    bytes: int  # of an element


@inner
def _key(given: Sort, address: int, size: int) -> int:
    """The element as an integer of the same width, to be compared signed."""
    bits = load_index(address, size, 1)
    bits = given.zero if bits == -1 << (8 * size - 1) else bits
    return bits ^ ((bits >> 63) & given.inverted) ^ given.flip


@inner
def entry_bytes(size: int, length: int) -> int:
    """Bytes of an entry of a row of `length` elements of `size` bytes: its key and number are packed, or not."""
    return 8 if size <= 4 and length <= NUMBER_MASK else 16


@inner
def _move(target: int, source: int, entry: int) -> None:
    """Copies one entry of 8 (packed: key, then number) or 16 bytes (key and number)."""
    store_i64(target, load_i64(source))
    if entry == 16:
        store_i64(target + 8, load_i64(source + 8))


@inner
def _insertion_sort(entries: int, count: int, entry: int) -> None:
    for k in range(1, count):
        key, number = load_i64(entries + k * entry), load_i64(entries + k * entry + entry - 8)
        at = entries + k * entry
        while at > entries and load_i64(at - entry) > key:
            _move(at, at - entry, entry)
            at -= entry
        store_i64(at, key)
        if entry == 16:
            store_i64(at + 8, number)


@inner
def _radix_pass(target: int, source: int, counts: int, count: int, entry: int, shift: int, flip: int) -> bool:
    """Sorts by one digit; False, with nothing moved, if it is the same in all entries."""
    for digit in range(DIGITS):
        store_i64(counts + 8 * digit, 0)
    for k in range(count):
        index = counts + 8 * (((load_i64(source + k * entry) ^ flip) >> shift) & 255)
        store_i64(index, load_i64(index) + 1)
    if load_i64(counts + 8 * (((load_i64(source) ^ flip) >> shift) & 255)) == count:
        return False
    position = target
    for digit in range(DIGITS):
        digits = load_i64(counts + 8 * digit)
        store_i64(counts + 8 * digit, position)
        position += digits * entry
    for k in range(count):
        index = counts + 8 * (((load_i64(source + k * entry) ^ flip) >> shift) & 255)
        position = load_i64(index)
        _move(position, source + k * entry, entry)
        store_i64(index, position + entry)
    return True


@inner
def _sorted(entries: int, spare: int, counts: int, count: int, entry: int, size: int) -> int:
    """Sorts stably by key; returns the buffer that holds the result."""
    if count <= INSERTED:
        _insertion_sort(entries, count, entry)
        return entries
    first, flip = (NUMBER_BITS, 0) if entry == 8 else (0, LOWEST)
    for digit in range(size):
        if _radix_pass(spare, entries, counts, count, entry, first + 8 * digit, flip):
            entries, spare = spare, entries
    return entries


@inner
def _offset(given: Sort, unit: int, length: int) -> int:
    """The number of elements before the first one of a row of `length` elements."""
    return unit // given.inner * given.inner * length + unit % given.inner


@inner
def _copy_element(target: int, source: int, size: int) -> None:
    if size == 1:
        store_i8(target, load_i8(source))
    elif size == 2:
        store_i16(target, load_i16(source))
    else:
        copy_bytes(target, source, size)


@inner
def _copy_in_order(given: Sort, operands: int, unit: int, numbers: int, entry: int, mask: int) -> None:
    """Copies to element k of each result the element whose number is stored at numbers + k * entry."""
    for number in range(given.operands):
        operand = SortOperand.read(operands, number)
        size, step = operand.bytes, given.inner * operand.bytes
        source = operand.source + _offset(given, unit, given.length) * size
        target = operand.target + _offset(given, unit, given.limit) * size
        for k in range(given.limit):
            index = load_i64(numbers + k * entry) & mask
            _copy_element(target + k * step, source + index * step, size)


@codelet
def sort_by_key(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Sorts rows by one operand's elements."""
    given, operands = Sort.read(parameters), parameters + 8 * Sort.WORDS
    operand, limit, capacity = SortOperand.read(operands, given.key), given.limit, given.capacity
    size, entry = operand.bytes, entry_bytes(operand.bytes, given.length)
    # A packed entry is the key made non-negative, with the element's number in its low bits.
    raised, shift, mask = (-(-1 << (8 * size - 1)), NUMBER_BITS, NUMBER_MASK) if entry == 8 else (0, 0, 0)
    counts = scratch + RESERVED_SCRATCH
    for unit in range(lo, hi):
        source = operand.source + _offset(given, unit, given.length) * size
        entries = after(counts, COUNTS_BYTES)
        spare = after(entries, capacity * entry)
        filled, bound, bounded = 0, 0, False
        for k in range(given.length):
            key = ((_key(given, source + k * given.inner * size, size) + raised) << shift) | (k & mask)
            if bounded and key >= bound:
                continue
            if filled == capacity:
                found = _sorted(entries, spare, counts, filled, entry, size)
                spare = entries + spare - found
                entries = found
                filled, bound, bounded = limit, load_i64(entries + (limit - 1) * entry), True
                if key >= bound:
                    continue
            store_i64(entries + filled * entry, key)
            if entry == 16:
                store_i64(entries + filled * entry + 8, k)
            filled += 1
        entries = _sorted(entries, spare, counts, filled, entry, size)
        _copy_in_order(given, operands, unit, entries + entry - 8, entry, NUMBER_MASK if entry == 8 else -1)


@inner
def _comes_before(comparator: int, table: int, i: int, j: int, answer: int) -> bool:
    """Whether element i must come before j; elements that a comparator orders both ways are equal."""
    call_code(comparator, table, i, j, answer)
    if load_i8(answer) == 0:
        return False
    call_code(comparator, table, j, i, answer)
    return load_i8(answer) == 0


@inner
def _merge(target: int, source: int, lo: int, middle: int, hi: int, comparator: int, table: int, answer: int) -> None:
    """Merges two sorted runs of element numbers; of equal elements, the left run's come first."""
    left, right = lo, middle
    for k in range(lo, hi):
        if left < middle and (
            right >= hi or not _comes_before(comparator, table, word(source, right), word(source, left), answer)
        ):
            store_i64(target + 8 * k, word(source, left))
            left += 1
        else:
            store_i64(target + 8 * k, word(source, right))
            right += 1


@codelet
def sort_by_comparator(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Sorts rows by the codelet at the address COMPARATOR, which gets a table of [address, step] by operand."""
    given, operands = Sort.read(parameters), parameters + 8 * Sort.WORDS
    answer, length = scratch + RESERVED_SCRATCH, given.length
    table = after(answer, 8)
    for unit in range(lo, hi):
        for number in range(given.operands):
            operand = SortOperand.read(operands, number)
            store_i64(table + 16 * number, operand.source + _offset(given, unit, length) * operand.bytes)
            store_i64(table + 16 * number + 8, given.inner * operand.bytes)
        numbers = after(table, 16 * given.operands)
        spare = after(numbers, 8 * length)
        for k in range(length):
            store_i64(numbers + 8 * k, k)
        run = 1
        while run < length:
            for start in range(0, length, 2 * run):
                middle, end = min(start + run, length), min(start + 2 * run, length)
                _merge(spare, numbers, start, middle, end, given.comparator, table, answer)
            numbers, spare = spare, numbers
            run *= 2
        _copy_in_order(given, operands, unit, numbers, 8, -1)


def key_words(key: SortKey, element_type: str) -> tuple[int, int, int]:
    """ZERO, INVERTED and FLIP for a real element type: -NaN < -Inf < ... < Inf < NaN; unsigned integers in order."""
    lowest = -1 << (8 * Shape(element_type).dtype.itemsize - 1)
    is_float, inverted = element_type in FLOATS, -1 if key.descending else 0
    zero = 0 if is_float and not key.total_order else lowest
    unsigned = not is_float and element_type not in SIGNED
    return zero, ~lowest if is_float else 0, (lowest if unsigned else 0) ^ inverted


def encoded_sort(work: SortWork) -> Encoded:
    """The header, then the operands."""
    shapes, limit, order = [each.shape for each in work.sources], work.limit, work.order
    dimensions = shapes[0].dimensions
    length, inner_rows = dimensions[work.dimension], prod(dimensions[work.dimension + 1 :])
    sizes = {"inner": inner_rows, "length": length, "limit": limit, "operands": len(shapes)}
    operands = [
        SortOperand(source=each.address, target=target, bytes=each.shape.dtype.itemsize)
        for each, target in zip(work.sources, work.targets, strict=True)
    ]
    if not isinstance(order, SortKey):
        scratch = space_of(8, 16 * len(shapes), 8 * length, 8 * length)
        parameters = block(Sort(**sizes), operands)
        return Encoded.of(sort_by_comparator, parameters, scratch, ((Sort.COMPARATOR, order),))
    key, capacity = shapes[order.operand], 2 * limit + INSERTED if 4 * limit + INSERTED < length else length
    zero, inverted, flip = key_words(order, key.element_type)
    header = Sort(**sizes, key=order.operand, zero=zero, inverted=inverted, flip=flip, capacity=capacity)
    entries = capacity * entry_bytes.function(key.dtype.itemsize, length)
    return Encoded.of(sort_by_key, block(header, operands), space_of(COUNTS_BYTES, entries, entries))
