"""HLO reduce-window whose windows all begin with the first element, or end with the last: running sums and the like.

Each result combines the one before it with one more element, in the order of the elements, beginning with the initial
value. Unit: some neighbouring rows where a row is contiguous, else the columns of one outer index, or a part of these.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from engine.codelets.language.build import Codelet, inner
from engine.codelets.language.element import NUMBA_NAMES
from engine.codelets.language.encoded import Encoded
from engine.codelets.language.memory import pointer
from engine.codelets.language.record import Address, Record, block
from engine.machine_code.abi import RESERVED_SCRATCH
from engine.program.work.sorting import SCANNED_ROWS, ScanWork

OPERATIONS = ("add", "multiply", "minimum", "maximum")
COLUMNS = 64  # columns scanned side by side
SCRATCH_BYTES = 8 * COLUMNS
Pointer = Any  # the result of `pointer`: Numba indexes it like an array
Number = Any


class Scan(Record):
    """The parameters of a codelet of `scan`; source [outer, length, inner], target [outer, results, inner]."""

    source: Address = 0
    initial: Address = 0
    target: Address = 0
    outer: int
    length: int
    results: int  # LENGTH, or one more where each result has only the elements before it
    inner: int
    backward: int  # whether it begins with the last element
    columns: int  # of a unit, where INNER is more than 1


@inner
def _combined(operation: int, old: Number, new: Number) -> Number:
    if operation == 0:
        return old + new
    if operation == 1:
        return old * new
    if operation == 2:  # NaN on either side is the result
        return old if old < new or old != old else new
    return old if old > new or old != old else new


@inner
def _scan_rows(given: Scan, source: Pointer, target: Pointer, initial: Number, operation: int, row: int) -> None:
    """Scans SCANNED_ROWS contiguous rows, four, from `row` on; the last one several times if there are fewer."""
    length, results, exclusive, last = given.length, given.results, given.results - given.length, given.outer - 1
    b_row, c_row, d_row = min(row + 1, last), min(row + 2, last), min(row + 3, last)
    a = b = c = d = initial
    for k in range(results):
        at = length - 1 - k + exclusive if given.backward else k - exclusive
        if k >= exclusive:
            a = _combined(operation, a, source[row * length + at])
            b = _combined(operation, b, source[b_row * length + at])
            c = _combined(operation, c, source[c_row * length + at])
            d = _combined(operation, d, source[d_row * length + at])
        to = results - 1 - k if given.backward else k
        target[row * results + to] = a
        target[b_row * results + to] = b
        target[c_row * results + to] = c
        target[d_row * results + to] = d


@inner
def _scan_columns(
    given: Scan, source: Pointer, target: Pointer, sums: Pointer, initial: Number, operation: int, unit: int
) -> None:
    """Scans a unit's columns, COLUMNS at a time, down to the last row."""
    length, results, width, columns = given.length, given.results, given.inner, given.columns
    exclusive, parts = results - length, (width + columns - 1) // columns
    outer, first = unit // parts, unit % parts * columns
    end = min(width, first + columns)
    for column in range(first, end, COLUMNS):
        count = min(COLUMNS, end - column)
        for c in range(count):
            sums[c] = initial
        for k in range(results):
            at = length - 1 - k + exclusive if given.backward else k - exclusive
            to = (outer * results + (results - 1 - k if given.backward else k)) * width + column
            if k < exclusive:
                for c in range(count):
                    target[to + c] = initial
            else:
                begin = (outer * length + at) * width + column
                for c in range(count):
                    value = _combined(operation, sums[c], source[begin + c])
                    sums[c] = value
                    target[to + c] = value


@cache
def scan(opcode: str, element_type: str) -> Codelet:
    """The codelet that combines elements by one of OPERATIONS."""
    name, operation = NUMBA_NAMES[element_type], OPERATIONS.index(opcode)

    def run(parameters: int, lo: int, hi: int, scratch: int) -> None:
        given, sums = Scan.read(parameters), pointer(scratch + RESERVED_SCRATCH, name)
        source, target = pointer(given.source, name), pointer(given.target, name)
        initial = pointer(given.initial, name)[0]
        for unit in range(lo, hi):
            if given.inner == 1:
                _scan_rows(given, source, target, initial, operation, unit * SCANNED_ROWS)
            else:
                _scan_columns(given, source, target, sums, initial, operation, unit)

    return Codelet(run, f"scan_{opcode}_{name}")


def encoded_scan(work: ScanWork) -> Encoded:
    """The fields of `Scan`."""
    return Encoded.of(scan(work.opcode, work.element_type), block(Scan.of(work)), SCRATCH_BYTES)
