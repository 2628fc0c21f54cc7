"""Tables in the host's memory: a program looks rows up, and subtracts gradients from them, in the middle of a step.

The parameters are `host_call`'s. `data` is the address of a `TableCall`, which has the address of the `Table`.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cache

from engine.codelets.host.host_call import HostCallBlock
from engine.codelets.host.queues import leave_step
from engine.codelets.host.rows import copy_bytes
from engine.codelets.language.build import Codelet, codelet, inner
from engine.codelets.language.element import load_element as load
from engine.codelets.language.element import store_element as store
from engine.codelets.language.lanes import ITEM_BYTES
from engine.codelets.language.memory import store_i64
from engine.codelets.language.record import word
from engine.codelets.rows.index_walk import AHEAD, fetch_lines, load_index


class Table(IntEnum):
    """Words that describe a table and its update."""

    ROWS = 0  # address of the first row
    COUNT = 1  # number of rows
    WIDTH = 2  # elements of a row
    ROW_BYTES = 3
    RATE = 4  # factor of a gradient, a float64 for tables of f64, else a float32
    CALLS = 5  # calls with gradients in one update
    KEPT_CALLS = 6  # calls since the last update
    KEPT = 7  # rows of gradients in these calls
    KEPT_INDICES = 8  # address, int64
    KEPT_GRADIENTS = 9  # address
    WRONG = 10  # the index that ended the step
    WORDS = 11


class TableCall(IntEnum):
    """Words of one call of a program."""

    TABLE = 0  # address
    COUNT = 1  # number of indices
    INDEX_BYTES = 2
    INDEX_SIGNED = 3
    WORDS = 4


@inner
def _array(parameters: int, number: int) -> int:
    """The address of an operand or, for numbers after the operands, of a result."""
    return word(parameters, HostCallBlock.WORDS + number)


@inner
def _index(call: int, indices: int, number: int) -> int:
    size = word(call, TableCall.INDEX_BYTES)
    return load_index(indices + number * size, size, word(call, TableCall.INDEX_SIGNED))


@inner
def _are_inside(parameters: int) -> bool:
    """Whether all indices name rows of the table; otherwise all workers leave the step."""
    call, indices = word(parameters, HostCallBlock.DATA), _array(parameters, 0)
    table = word(call, TableCall.TABLE)
    store_i64(word(parameters, HostCallBlock.STATUS), 0)
    for number in range(word(call, TableCall.COUNT)):
        index = _index(call, indices, number)
        if index < 0 or index >= word(table, Table.COUNT):
            store_i64(table + 8 * Table.WRONG, index)
            store_i64(word(parameters, HostCallBlock.STATUS), number + 1)
            leave_step(word(parameters, HostCallBlock.CALL))
            return False
    return True


@codelet
def look_up_rows(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Copies a row of the table for each index."""
    if not _are_inside(parameters):
        return
    call, indices, target = word(parameters, HostCallBlock.DATA), _array(parameters, 0), _array(parameters, 1)
    table, count = word(call, TableCall.TABLE), word(call, TableCall.COUNT)
    rows, row_bytes = word(table, Table.ROWS), word(table, Table.ROW_BYTES)
    for number in range(count):
        if number + AHEAD < count:
            fetch_lines(rows + _index(call, indices, number + AHEAD) * row_bytes, row_bytes)
        copy_bytes(target + number * row_bytes, rows + _index(call, indices, number) * row_bytes, row_bytes)


@cache
def subtract_rows(element_type: str) -> Codelet:
    """The codelet that subtracts a multiple of a gradient from the row of each index, in order, repeated ones too.

    With several calls in an update it keeps indices and gradients until the last of them.
    """
    size, computed = ITEM_BYTES[element_type], "f64" if element_type == "f64" else "f32"

    @inner
    def subtract(table: int, index: int, gradient: int) -> None:
        row, width = word(table, Table.ROWS) + index * word(table, Table.ROW_BYTES), word(table, Table.WIDTH)
        rate = load(table + 8 * Table.RATE, computed, computed)
        for k in range(width):
            value = load(row + size * k, element_type, computed)
            store(row + size * k, element_type, value - rate * load(gradient + size * k, element_type, computed))

    def subtract_rows(parameters: int, lo: int, hi: int, scratch: int) -> None:
        if not _are_inside(parameters):
            return
        call, indices, gradients = word(parameters, HostCallBlock.DATA), _array(parameters, 0), _array(parameters, 1)
        table, count = word(call, TableCall.TABLE), word(call, TableCall.COUNT)
        rows, row_bytes = word(table, Table.ROWS), word(table, Table.ROW_BYTES)
        if word(table, Table.CALLS) == 1:
            for number in range(count):
                if number + AHEAD < count:
                    fetch_lines(rows + _index(call, indices, number + AHEAD) * row_bytes, row_bytes)
                subtract(table, _index(call, indices, number), gradients + number * row_bytes)
            return
        kept, kept_indices = word(table, Table.KEPT), word(table, Table.KEPT_INDICES)
        kept_gradients = word(table, Table.KEPT_GRADIENTS)
        for number in range(count):
            store_i64(kept_indices + 8 * (kept + number), _index(call, indices, number))
        copy_bytes(kept_gradients + kept * row_bytes, gradients, count * row_bytes)
        kept += count
        calls = word(table, Table.KEPT_CALLS) + 1
        if calls >= word(table, Table.CALLS):
            for number in range(kept):
                subtract(table, word(kept_indices, number), kept_gradients + number * row_bytes)
            kept = calls = 0
        store_i64(table + 8 * Table.KEPT, kept)
        store_i64(table + 8 * Table.KEPT_CALLS, calls)

    return Codelet(subtract_rows, f"subtract_rows_{element_type}")
