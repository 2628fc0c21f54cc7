"""Floating-point exceptions of codelets that do not check for them: results that the operands do not explain."""

from __future__ import annotations

from typing import Any

from engine.codelets.language.build import codelet, inner
from engine.codelets.language.encoded import Encoded
from engine.codelets.language.memory import fetch_and_add, pointer, store_release
from engine.codelets.language.record import Address, Record, block, word
from engine.ir.floating_point import EXCEPTIONS, EXPONENTS, MANTISSAS
from engine.program.exception_counters import ExceptionWord
from engine.program.work.base import Array
from engine.program.work.exception_check import ExceptionCheckWork


class FloatArray(Record):
    """An array of floats."""

    address: Address = 0
    elements: int
    item_bytes: int
    exponent: int
    mantissa: int


class ExceptionCheck(Record):
    """Parameters of `find_exceptions`, followed by an Array for each operand. Unit: as in a Partition of the result."""

    record: Address = 0  # ExceptionWord.WORDS words
    wanted: int  # bits: 1 for invalid operations, 4 for overflows
    inner: int
    extent: int
    grain: int
    operands: int  # number of operands
    result: FloatArray


@inner
def _counted(bits: Any, first: int, last: int, exponent: int, mantissa: int) -> tuple[int, int]:
    """The numbers of NaNs and of infinities among floats, of whose bits `bits` is a pointer to integers."""
    non_finite = nans = 0
    for k in range(first, last):
        non_finite += (bits[k] & exponent) == exponent
    if non_finite:
        for k in range(first, last):
            nans += (bits[k] & exponent) == exponent and (bits[k] & mantissa) != 0
    return nans, non_finite - nans


@inner
def special(array: FloatArray, first: int, last: int) -> tuple[int, int]:
    """The numbers of NaNs and of infinities among elements first <= e < last."""
    if array.item_bytes == 4:
        return _counted(pointer(array.address, "int32"), first, last, array.exponent, array.mantissa)
    if array.item_bytes == 2:
        return _counted(pointer(array.address, "int16"), first, last, array.exponent, array.mantissa)
    return _counted(pointer(array.address, "int64"), first, last, array.exponent, array.mantissa)


@codelet
def find_exceptions(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Counts the NaNs and infinities of a part of the result whose operands have none.

    NaN from infinities is an invalid operation; from finite operands an intermediate value has overflowed.
    """
    given = ExceptionCheck.read(parameters)
    size, extent = given.inner, given.extent
    start, stop = min(lo * given.grain, extent), min(hi * given.grain, extent)
    nans = infinities = 0
    for outer in range(given.result.elements // max(size * extent, 1)):
        base = outer * extent
        found = special(given.result, (base + start) * size, (base + stop) * size)
        nans += found[0]
        infinities += found[1]
    if nans + infinities == 0:
        return
    nans_before = infinities_before = 0
    for number in range(given.operands):
        operand = FloatArray.read(parameters + 8 * ExceptionCheck.WORDS, number)
        found = special(operand, 0, operand.elements)
        nans_before += found[0]
        infinities_before += found[1]
    invalid = nans if infinities_before and not nans_before else 0
    overflow = nans + infinities if not infinities_before and not nans_before else 0
    raised = 0
    if invalid and given.wanted & 1:
        raised += fetch_and_add(given.record + 8 * ExceptionWord.INVALID, invalid) + 1
    if overflow and given.wanted & 4:
        raised += fetch_and_add(given.record + 8 * ExceptionWord.OVERFLOW, overflow) + 1
    if raised and word(given.record, ExceptionWord.STOP) != 0:
        store_release(word(given.record, ExceptionWord.STOP), 1)


def encoded_exception_check(work: ExceptionCheckWork) -> Encoded:
    """The header, then the operands."""
    parameters = ExceptionCheck.of(
        work,
        wanted=sum(1 << EXCEPTIONS.index(name) for name in work.wanted),
        operands=len(work.operands),
        result=_float_array(work.result),
    )
    return Encoded.of(find_exceptions, block(parameters, [_float_array(each) for each in work.operands]))


def _float_array(array: Array) -> FloatArray:
    kind = array.shape.element_type
    return FloatArray(
        address=array.address,
        elements=array.shape.elements,
        item_bytes=array.shape.dtype.itemsize,
        exponent=EXPONENTS[kind],
        mantissa=MANTISSAS[kind],
    )
