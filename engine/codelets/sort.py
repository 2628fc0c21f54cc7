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
from engine.codelets.language.memory import call4, load_i8, load_i16, load_i32, load_i64, store_i8, store_i16, store_i64
from engine.codelets.language.record import Address, Record, block, word
from engine.codelets.language.scratch import after, space_of
from engine.codelets.scan import ROWS
from engine.ir.shape import FLOATS, SIGNED, Shape
from engine.machine_code.abi import RESERVED_SCRATCH
from engine.program.work.sorting import SCANNED_ROWS, SortKey, SortWork

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
    key: int  # number of the operand that is compared
    zero: int  # replacement of the lowest signed bits, which are -0 of a float
    inverted: int  # bits that are inverted where the sign bit is set
    flip: int  # bits that are always inverted
    capacity: int  # entries of each of the two buffers in scratch
    comparator: Address = 0
    operands: int


class SortOperand(Record):
    """The words of each operand."""

    source: Address = 0
    target: Address = 0
    bytes: int  # of an element


@inner
def _load(address: int, size: int) -> int:
    if size == 4:
        return load_i32(address)
    if size == 8:
        return load_i64(address)
    return load_i16(address) if size == 2 else load_i8(address)


@inner
def _key(parameters: int, address: int, size: int) -> int:
    """The element as an integer of the same width, to be compared signed."""
    bits = _load(address, size)
    bits = word(parameters, Sort.ZERO) if bits == -1 << (8 * size - 1) else bits
    return bits ^ ((bits >> 63) & word(parameters, Sort.INVERTED)) ^ word(parameters, Sort.FLIP)


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
def _row_offset(parameters: int, unit: int) -> int:
    """The number of elements before a row's first one."""
    inner_rows = word(parameters, Sort.INNER)
    return unit // inner_rows * inner_rows * word(parameters, Sort.LENGTH) + unit % inner_rows


@inner
def _target_offset(parameters: int, unit: int) -> int:
    inner_rows = word(parameters, Sort.INNER)
    return unit // inner_rows * inner_rows * word(parameters, Sort.LIMIT) + unit % inner_rows


@inner
def _copy_element(target: int, source: int, size: int) -> None:
    if size == 1:
        store_i8(target, load_i8(source))
    elif size == 2:
        store_i16(target, load_i16(source))
    else:
        copy_bytes(target, source, size)


@inner
def _copy_in_order(parameters: int, unit: int, numbers: int, entry: int, mask: int) -> None:
    """Copies to element k of each result the element whose number is stored at numbers + k * entry."""
    inner_rows = word(parameters, Sort.INNER)
    for number in range(word(parameters, Sort.OPERANDS)):
        operand = parameters + 8 * (Sort.WORDS + SortOperand.WORDS * number)
        size = word(operand, SortOperand.BYTES)
        source = word(operand, SortOperand.SOURCE) + _row_offset(parameters, unit) * size
        target = word(operand, SortOperand.TARGET) + _target_offset(parameters, unit) * size
        step = inner_rows * size
        for k in range(word(parameters, Sort.LIMIT)):
            index = load_i64(numbers + k * entry) & mask
            _copy_element(target + k * step, source + index * step, size)


@codelet
def sort_by_key(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Sorts rows by one operand's elements."""
    length, limit = word(parameters, Sort.LENGTH), word(parameters, Sort.LIMIT)
    capacity, inner_rows = word(parameters, Sort.CAPACITY), word(parameters, Sort.INNER)
    operand = parameters + 8 * (Sort.WORDS + SortOperand.WORDS * word(parameters, Sort.KEY))
    size = word(operand, SortOperand.BYTES)
    entry = entry_bytes(size, length)
    # A packed entry is the key made non-negative, with the element's number in its low bits.
    raised, shift, mask = (-(-1 << (8 * size - 1)), NUMBER_BITS, NUMBER_MASK) if entry == 8 else (0, 0, 0)
    counts = scratch + RESERVED_SCRATCH
    for unit in range(lo, hi):
        source = word(operand, SortOperand.SOURCE) + _row_offset(parameters, unit) * size
        entries = after(counts, COUNTS_BYTES)
        spare = after(entries, capacity * entry)
        filled, bound, bounded = 0, 0, False
        for k in range(length):
            key = ((_key(parameters, source + k * inner_rows * size, size) + raised) << shift) | (k & mask)
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
        _copy_in_order(parameters, unit, entries + entry - 8, entry, NUMBER_MASK if entry == 8 else -1)


@inner
def _comes_before(comparator: int, table: int, i: int, j: int, answer: int) -> bool:
    """Whether element i must come before j; elements that a comparator orders both ways are equal."""
    call4(comparator, table, i, j, answer)
    if load_i8(answer) == 0:
        return False
    call4(comparator, table, j, i, answer)
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
    length, inner_rows = word(parameters, Sort.LENGTH), word(parameters, Sort.INNER)
    operands, comparator = word(parameters, Sort.OPERANDS), word(parameters, Sort.COMPARATOR)
    answer = scratch + RESERVED_SCRATCH
    table = after(answer, 8)
    for unit in range(lo, hi):
        for number in range(operands):
            operand = parameters + 8 * (Sort.WORDS + SortOperand.WORDS * number)
            size = word(operand, SortOperand.BYTES)
            row = word(operand, SortOperand.SOURCE) + _row_offset(parameters, unit) * size
            store_i64(table + 16 * number, row)
            store_i64(table + 16 * number + 8, inner_rows * size)
        numbers = after(table, 16 * operands)
        spare = after(numbers, 8 * length)
        for k in range(length):
            store_i64(numbers + 8 * k, k)
        run = 1
        while run < length:
            for start in range(0, length, 2 * run):
                middle, end = min(start + run, length), min(start + 2 * run, length)
                _merge(spare, numbers, start, middle, end, comparator, table, answer)
            numbers, spare = spare, numbers
            run *= 2
        _copy_in_order(parameters, unit, numbers, 8, -1)


assert ROWS == SCANNED_ROWS


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
    length = dimensions[work.dimension]
    number = capacity = zero = inverted = flip = 0
    if isinstance(order, SortKey):
        number, capacity = order.operand, 2 * limit + INSERTED if 4 * limit + INSERTED < length else length
        zero, inverted, flip = key_words(order, shapes[number].element_type)
        entries = capacity * entry_bytes.function(shapes[number].dtype.itemsize, length)
        areas: tuple[int, ...] = (COUNTS_BYTES, entries, entries)
    else:
        areas = (8, 16 * len(shapes), 8 * length, 8 * length)
    header = Sort(
        inner=prod(dimensions[work.dimension + 1 :]),
        length=length,
        limit=limit,
        key=number,
        zero=zero,
        inverted=inverted,
        flip=flip,
        capacity=capacity,
        operands=len(shapes),
    )
    operands = [
        SortOperand(source=each.address, target=target, bytes=each.shape.dtype.itemsize)
        for each, target in zip(work.sources, work.targets, strict=True)
    ]
    codelet, calls = (
        (sort_by_key, ()) if isinstance(order, SortKey) else (sort_by_comparator, ((Sort.COMPARATOR, order),))
    )
    return Encoded.of(codelet, block(header, operands), space_of(*areas), calls)
