"""Sums of float32 arrays over the processes of one machine, through memory that they share.

Each process has a row: a header, and two halves for its values, which calls use alternately. For call n a process
copies its values to a half, stores the call's digest, and publishes n. Once all have published n, each process sums the
rows in their order. No process writes to a half before all have published the next call, and so have read the half. If
processes do not come in time, or have other digests, a function of the host continues the call.

The parameters are `host_call`'s. `data` is the address of a `SumCall`, before the elements of each operand.
"""

from __future__ import annotations

from enum import IntEnum

from engine.codelets.host.host_call import HostCallBlock, call_host
from engine.codelets.host.rows import copy_bytes
from engine.codelets.language.build import codelet, inner
from engine.codelets.language.memory import (
    call_address,
    floating_point_state,
    load_acquire,
    pause,
    pointer,
    set_floating_point_state,
    store_i64,
    store_release,
    with_denormals,
)
from engine.codelets.language.record import word

CLOCK_MONOTONIC = 1


class Header(IntEnum):
    """Words of the header of a row."""

    PUBLISHED = 0  # the latest call whose values and digest are there
    DIGESTS = 1  # digests of the calls in both halves
    WORDS = 16  # two cache lines, as processors fetch them in pairs


class Rows(IntEnum):
    """Words of one process about all rows."""

    FIRST = 0  # address of row 0
    ROW_BYTES = 1
    HALF_BYTES = 2
    RANK = 3
    SIZE = 4  # number of rows
    CALLS = 5  # calls that have ended
    BEGUN = 6  # calls that another thread was to make
    ENDED = 7  # those of BEGUN that have ended; the codelet calls only if all have
    PAUSES = 8  # pauses before the host continues
    CLOCK = 9  # address of clock_gettime
    TIME = 10  # a timespec
    NANOSECONDS = 12  # spent in calls of the codelet
    BYTES = 13  # of the values in these calls
    FAILED = 14  # 1 once a call has failed: the codelet makes none any more
    WORDS = 15


class SumCall(IntEnum):
    """Words of one call of a program."""

    ROWS = 0  # address of `Rows`
    DIGEST = 1
    BYTES = 2  # of all values
    WORDS = 3


@inner
def _nanoseconds(rows: int) -> int:
    time = rows + 8 * Rows.TIME
    call_address(word(rows, Rows.CLOCK), CLOCK_MONOTONIC, time)
    return word(time, 0) * 1_000_000_000 + word(time, 1)


@inner
def _row(rows: int, rank: int) -> int:
    return word(rows, Rows.FIRST) + rank * word(rows, Rows.ROW_BYTES)


@inner
def _values(rows: int, rank: int, number: int) -> int:
    """The address of a process' values for a call."""
    return _row(rows, rank) + 8 * Header.WORDS + (number & 1) * word(rows, Rows.HALF_BYTES)


@inner
def _publish(parameters: int, call: int, rows: int, number: int) -> None:
    own = word(rows, Rows.RANK)
    position = _values(rows, own, number)
    for k in range(word(parameters, HostCallBlock.OPERANDS)):
        count = 4 * word(call, SumCall.WORDS + k)
        copy_bytes(position, word(parameters, HostCallBlock.WORDS + k), count)
        position += count
    store_i64(_row(rows, own) + 8 * (Header.DIGESTS + (number & 1)), word(call, SumCall.DIGEST))
    store_release(_row(rows, own), number)


@inner
def _all_published(call: int, rows: int, number: int) -> bool:
    """Whether all processes publish the same call in time."""
    pauses = word(rows, Rows.PAUSES)
    for rank in range(word(rows, Rows.SIZE)):
        row = _row(rows, rank)
        while load_acquire(row) < number:
            if pauses == 0:
                return False
            pauses -= 1
            pause()
        if word(row, Header.DIGESTS + (number & 1)) != word(call, SumCall.DIGEST):
            return False
    return True


@inner
def _add(total: int, one: int, other: int, count: int) -> None:
    x, y, z = pointer(total, "float32"), pointer(one, "float32"), pointer(other, "float32")
    for i in range(count):
        x[i] = y[i] + z[i]


@inner
def _sum_rows(parameters: int, call: int, rows: int, number: int) -> None:
    operands, offset = word(parameters, HostCallBlock.OPERANDS), 0
    for k in range(operands):
        count, total = word(call, SumCall.WORDS + k), word(parameters, HostCallBlock.WORDS + operands + k)
        _add(total, _values(rows, 0, number) + offset, _values(rows, 1, number) + offset, count)
        for rank in range(2, word(rows, Rows.SIZE)):
            _add(total, total, _values(rows, rank, number) + offset, count)
        offset += 4 * count


@inner
def _is_summed(parameters: int) -> bool:
    call = word(parameters, HostCallBlock.DATA)
    rows = word(call, SumCall.ROWS)
    if load_acquire(rows + 8 * Rows.FAILED) or load_acquire(rows + 8 * Rows.ENDED) != word(rows, Rows.BEGUN):
        return False
    begin, number = _nanoseconds(rows), word(rows, Rows.CALLS) + 1
    _publish(parameters, call, rows, number)
    is_summed = _all_published(call, rows, number)
    if is_summed:
        _sum_rows(parameters, call, rows, number)
        store_i64(rows + 8 * Rows.CALLS, number)
        store_i64(rows + 8 * Rows.BYTES, word(rows, Rows.BYTES) + word(call, SumCall.BYTES))
        store_i64(word(parameters, HostCallBlock.STATUS), 0)
    spent = _nanoseconds(rows) - begin
    store_i64(rows + 8 * Rows.NANOSECONDS, word(rows, Rows.NANOSECONDS) + spent)
    return is_summed


@codelet
def sum_over_processes(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Sums the operands over the processes, in order of ranks and with denormals as on the host, or calls the host."""
    state = floating_point_state()
    set_floating_point_state(with_denormals(state))
    is_summed = _is_summed(parameters)
    set_floating_point_state(state)
    if not is_summed:
        call_host(parameters)
