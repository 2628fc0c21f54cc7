"""Checks values that an operation is about to use: the first invalid one is recorded, and the step is left."""

from __future__ import annotations

import numpy as np

from engine.codelets.host.queues import leave_step_of
from engine.codelets.host.rows import word
from engine.codelets.language.build import codelet, inner
from engine.codelets.language.encoded import Encoded
from engine.codelets.language.memory import load_f32, load_f64, load_i64, pointer, store_i64
from engine.codelets.language.record import Address, Record, Table, block
from engine.codelets.rows.index_walk import load_index
from engine.ir.floating_point import EXPONENTS
from engine.ir.shape import FLOATS, UNSIGNED
from engine.machine_code.abi import Scratch
from engine.program.work.value_check import ValueCheckWork

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
def _limit(parameters: int, limits: int, element: int) -> int:
    """The lower limit or the bound of an element."""
    period = word(parameters, ValueCheckBlock.PERIOD)
    return word(limits, 0) if period == 1 else word(limits, element % period)


@inner
def _low(parameters: int, element: int) -> int:
    return _limit(parameters, word(parameters, ValueCheckBlock.LOWS), element)


@inner
def _bound(parameters: int, element: int) -> int:
    return _limit(parameters, word(parameters, ValueCheckBlock.BOUNDS), element)


@inner
def _bits(parameters: int, element: int) -> int:
    size = word(parameters, ValueCheckBlock.ITEM_BYTES)
    address = word(parameters, ValueCheckBlock.OPERAND) + element * size
    return load_index(address, size, word(parameters, ValueCheckBlock.SIGNED))


@inner
def _is_float_outside(parameters: int, element: int) -> bool:
    """Whether a float, truncated, is outside of the range; NaN is."""
    size = word(parameters, ValueCheckBlock.ITEM_BYTES)
    address = word(parameters, ValueCheckBlock.OPERAND) + element * size
    value = load_f64(address) if size == 8 else load_f32(address) * 1.0
    low, high = float(_low(parameters, element)) - 1.0, float(_bound(parameters, element))
    return not (value > low and value < high)


@inner
def _fails(parameters: int, element: int) -> bool:
    """Whether one element fails."""
    kind = word(parameters, ValueCheckBlock.KIND)
    if kind == 1:
        return _is_float_outside(parameters, element)
    value = _bits(parameters, element)
    if kind == 2:
        return value == 0
    if kind == 3:
        exponent = word(parameters, ValueCheckBlock.EXPONENT)
        return (value & exponent) == exponent
    return value < _low(parameters, element) or value >= _bound(parameters, element)


@inner
def _count(parameters: int, first: int, last: int) -> int:
    """Counts elements that fail, or returns another number that is 0 only if none does; in vectors if possible."""
    kind, size = word(parameters, ValueCheckBlock.KIND), word(parameters, ValueCheckBlock.ITEM_BYTES)
    address, found = word(parameters, ValueCheckBlock.OPERAND), 0
    low, high = _low(parameters, 0), _bound(parameters, 0)
    is_plain = kind == 0 and word(parameters, ValueCheckBlock.PERIOD) == 1
    if is_plain and size == 4 and word(parameters, ValueCheckBlock.SIGNED) != 0:
        words = pointer(address, "int32")
        for k in range(first, last):
            found += (words[k] < low) | (words[k] >= high)
    elif is_plain and size == 8 and word(parameters, ValueCheckBlock.SIGNED) != 0:
        wide = pointer(address, "int64")
        for k in range(first, last):
            found += (wide[k] < low) | (wide[k] >= high)
    elif kind == 1 and size == 4 and word(parameters, ValueCheckBlock.PERIOD) == 1:
        singles, least, most = pointer(address, "float32"), float(low) - 1.0, float(high)
        for k in range(first, last):
            found += 1 - ((singles[k] > least) & (singles[k] < most))
    elif kind == 3 and size == 4:
        exponent, floats = word(parameters, ValueCheckBlock.EXPONENT), pointer(address, "int32")
        for k in range(first, last):
            found += (floats[k] & exponent) == exponent
    else:
        for k in range(first, last):
            found += _fails(parameters, k)
    return found


@codelet
def check_values(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Records the first element of each unit that fails; then all workers leave the step at the next jump."""
    elements, grain = word(parameters, ValueCheckBlock.ELEMENTS), word(parameters, ValueCheckBlock.GRAIN)
    for unit in range(lo, hi):
        first, last = unit * grain, min((unit + 1) * grain, elements)
        if _count(parameters, first, last) != 0:
            while not _fails(parameters, first):
                first += 1
            entry = word(parameters, ValueCheckBlock.RECORD) + 16 * unit
            if load_i64(entry) == 0:
                size = word(parameters, ValueCheckBlock.ITEM_BYTES)
                address = word(parameters, ValueCheckBlock.OPERAND) + first * size
                store_i64(entry + 8, load_i64(address) if size == 8 else load_index(address, size, 1))
                store_i64(entry, first + 1)
            leave_step_of(word(parameters, ValueCheckBlock.CALL), word(scratch, Scratch.WORKER))


KINDS = {"range": RANGE, "nonzero": NONZERO, "finite": FINITE}


def encoded_check(work: ValueCheckWork) -> Encoded:
    """The block of the array and its bounds."""
    kind = work.shape.element_type
    is_float_range = work.check.kind == "range" and kind in FLOATS
    parameters = ValueCheckBlock(
        call=work.call,
        record=work.record.words,
        operand=work.operand,
        elements=work.shape.elements,
        grain=work.grain,
        kind=FLOAT_RANGE if is_float_range else KINDS[work.check.kind],
        item_bytes=work.shape.dtype.itemsize,
        signed=int(kind not in UNSIGNED | {"pred"}),
        exponent=EXPONENTS.get(kind, 0),
        period=len(work.check.bounds),
        lows=np.array(work.check.lows, np.int64),
        bounds=np.array(work.check.bounds, np.int64),
    )
    return Encoded.of(check_values, block(parameters))
