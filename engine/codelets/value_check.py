"""Checks values that an operation is about to use: the first invalid one is recorded, and the step is left."""

from __future__ import annotations

import numpy as np

from engine.codelets.host.queues import leave_step_of
from engine.codelets.language.build import codelet, inner
from engine.codelets.language.encoded import Encoded
from engine.codelets.language.memory import load_f32, load_f64, load_i64, pointer, store_i64
from engine.codelets.language.record import Address, Record, Table, block, word
from engine.codelets.rows.index_walk import load_index
from engine.ir.floating_point import EXPONENTS
from engine.ir.shape import FLOATS, UNSIGNED
from engine.machine_code.abi import Scratch
from engine.program.work.custom_calls import ValueCheckWork

RANGE, FLOAT_RANGE, NONZERO, FINITE = range(4)


class ValueCheckBlock(Record):
    """Parameters of `check_values`. Unit: `grain` elements."""

    call: Address = 0  # the call block
    record: Table  # two words for each unit: 1 + the number of the element that fails, its bits
    operand: Address = 0
    elements: int
    grain: int
    kind: int
    item_bytes: int
    signed: int
    exponent: int  # the bits that are all set in infinities and NaNs only
    period: int
    lows: Table  # `period` words
    bounds: Table  # `period` words


@inner
def _limit(given: ValueCheckBlock, limits: int, element: int) -> int:
    """The lower limit or the bound of an element."""
    return word(limits, 0) if given.period == 1 else word(limits, element % given.period)


@inner
def _is_float_outside(given: ValueCheckBlock, element: int) -> bool:
    """Whether a float, truncated, is outside of the range; NaN is."""
    address = given.operand + element * given.item_bytes
    value = load_f64(address) if given.item_bytes == 8 else load_f32(address) * 1.0
    low, high = float(_limit(given, given.lows, element)) - 1.0, float(_limit(given, given.bounds, element))
    return not (value > low and value < high)


@inner
def _fails(given: ValueCheckBlock, element: int) -> bool:
    """Whether one element fails."""
    if given.kind == 1:
        return _is_float_outside(given, element)
    value = load_index(given.operand + element * given.item_bytes, given.item_bytes, given.signed)
    if given.kind == 2:
        return value == 0
    if given.kind == 3:
        return (value & given.exponent) == given.exponent
    return value < _limit(given, given.lows, element) or value >= _limit(given, given.bounds, element)


@inner
def _count(given: ValueCheckBlock, first: int, last: int) -> int:
    """Counts elements that fail, or returns another number that is 0 only if none does; in vectors if possible."""
    kind, size, is_even, found = given.kind, given.item_bytes, given.period == 1, 0
    low, high = word(given.lows, 0), word(given.bounds, 0)
    is_plain = kind == 0 and is_even and given.signed != 0
    if is_plain and size == 4:
        words = pointer(given.operand, "int32")
        for k in range(first, last):
            found += (words[k] < low) | (words[k] >= high)
    elif is_plain and size == 8:
        wide = pointer(given.operand, "int64")
        for k in range(first, last):
            found += (wide[k] < low) | (wide[k] >= high)
    elif kind == 1 and size == 4 and is_even:
        singles, least, most = pointer(given.operand, "float32"), float(low) - 1.0, float(high)
        for k in range(first, last):
            found += 1 - ((singles[k] > least) & (singles[k] < most))
    elif kind == 3 and size == 4:
        exponent, floats = given.exponent, pointer(given.operand, "int32")
        for k in range(first, last):
            found += (floats[k] & exponent) == exponent
    else:
        for k in range(first, last):
            found += _fails(given, k)
    return found


@codelet
def check_values(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Records the first element of each unit that fails; then all workers leave the step at the next jump."""
    given = ValueCheckBlock.read(parameters)
    for unit in range(lo, hi):
        first, last = unit * given.grain, min((unit + 1) * given.grain, given.elements)
        if _count(given, first, last) != 0:
            while not _fails(given, first):
                first += 1
            entry, size = given.record + 16 * unit, given.item_bytes
            if load_i64(entry) == 0:
                address = given.operand + first * size
                store_i64(entry + 8, load_i64(address) if size == 8 else load_index(address, size, 1))
                store_i64(entry, first + 1)
            leave_step_of(given.call, word(scratch, Scratch.WORKER))


KINDS = {"range": RANGE, "nonzero": NONZERO, "finite": FINITE}


def encoded_check(work: ValueCheckWork) -> Encoded:
    """The block of the array and its bounds."""
    kind = work.shape.element_type
    is_float_range = work.check.kind == "range" and kind in FLOATS
    parameters = ValueCheckBlock.of(
        work,
        record=work.record.words,
        elements=work.shape.elements,
        kind=FLOAT_RANGE if is_float_range else KINDS[work.check.kind],
        item_bytes=work.shape.dtype.itemsize,
        signed=int(kind not in UNSIGNED | {"pred"}),
        exponent=EXPONENTS.get(kind, 0),
        period=len(work.check.bounds),
        lows=np.array(work.check.lows, np.int64),
        bounds=np.array(work.check.bounds, np.int64),
    )
    return Encoded.of(check_values, block(parameters))
