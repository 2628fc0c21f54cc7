"""Floating-point exceptions of codelets that do not check for them: results that the operands do not explain."""

from __future__ import annotations

from typing import Any

from engine.codelets.language.build import codelet, inner
from engine.codelets.language.encoded import Encoded
from engine.codelets.language.memory import pointer, store_release
from engine.codelets.language.record import Address, Record, block, word
from engine.codelets.random import fetch_and_add
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
def special(array: int, first: int, last: int) -> tuple[int, int]:
    """The numbers of NaNs and of infinities among elements first <= e < last."""
    address, size = word(array, FloatArray.ADDRESS), word(array, FloatArray.ITEM_BYTES)
    exponent, mantissa = word(array, FloatArray.EXPONENT), word(array, FloatArray.MANTISSA)
    if size == 4:
        return _counted(pointer(address, "int32"), first, last, exponent, mantissa)
    if size == 2:
        return _counted(pointer(address, "int16"), first, last, exponent, mantissa)
    return _counted(pointer(address, "int64"), first, last, exponent, mantissa)


@codelet
def find_exceptions(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Counts the NaNs and infinities of a part of the result whose operands have none.

    NaN from infinities is an invalid operation; from finite operands an intermediate value has overflowed.
    """
    result = parameters + 8 * ExceptionCheck.RESULT
    inner_size, extent = word(parameters, ExceptionCheck.INNER), word(parameters, ExceptionCheck.EXTENT)
    start = min(lo * word(parameters, ExceptionCheck.GRAIN), extent)
    stop = min(hi * word(parameters, ExceptionCheck.GRAIN), extent)
    nans = infinities = 0
    for outer in range(word(result, FloatArray.ELEMENTS) // max(inner_size * extent, 1)):
        base = outer * extent
        found = special(result, (base + start) * inner_size, (base + stop) * inner_size)
        nans += found[0]
        infinities += found[1]
    if nans + infinities == 0:
        return
    nans_before = infinities_before = 0
    for operand in range(word(parameters, ExceptionCheck.OPERANDS)):
        array = parameters + 8 * (ExceptionCheck.WORDS + FloatArray.WORDS * operand)
        found = special(array, 0, word(array, FloatArray.ELEMENTS))
        nans_before += found[0]
        infinities_before += found[1]
    wanted, record = word(parameters, ExceptionCheck.WANTED), word(parameters, ExceptionCheck.RECORD)
    invalid = nans if infinities_before and not nans_before else 0
    overflow = nans + infinities if not infinities_before and not nans_before else 0
    raised = 0
    if invalid and wanted & 1:
        raised += fetch_and_add(record + 8 * ExceptionWord.INVALID, invalid) + 1
    if overflow and wanted & 4:
        raised += fetch_and_add(record + 8 * ExceptionWord.OVERFLOW, overflow) + 1
    if raised and word(record, ExceptionWord.STOP) != 0:
        store_release(word(record, ExceptionWord.STOP), 1)


def encoded_exception_check(work: ExceptionCheckWork) -> Encoded:
    """The header, then the operands."""
    parameters = ExceptionCheck(
        record=work.record,
        wanted=sum(1 << EXCEPTIONS.index(name) for name in work.wanted),
        inner=work.inner,
        extent=work.extent,
        grain=work.grain,
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
