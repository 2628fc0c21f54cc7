"""Codelets and parameter blocks of sorts and scans."""

from __future__ import annotations

from math import prod

from engine.codelets.language.record import block
from engine.codelets.language.scratch import space_of
from engine.codelets.scan import ROWS, SCRATCH_BYTES, Scan, scan
from engine.codelets.sort import COUNTS_BYTES, INSERTED, Sort, SortOperand, entry_bytes, sort_by_comparator, sort_by_key
from engine.host.encoded import Encoded
from engine.ir.shape import FLOATS, SIGNED, Shape
from engine.program.work.sorting import SCANNED_ROWS, ScanWork, SortKey, SortWork

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


def encoded_scan(work: ScanWork) -> Encoded:
    """The fields of `Scan`."""
    parameters = Scan(**{name: getattr(work, name) for name in Scan._names})
    return Encoded.of(scan(work.opcode, work.element_type), block(parameters), SCRATCH_BYTES)
