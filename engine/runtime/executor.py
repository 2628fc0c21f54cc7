"""The BSP virtual machine: each worker runs `executor` once for a whole call of many steps.

The step table is int64 [rows, 6 + 2 * workers], a row for each compute set or sync, in the order of
execution. Every step begins with a sync of its own, so a table need not end with one.

* compute row: each worker calls the codelet on its units lo <= unit < hi; an empty range is skipped.
* claimed row: a compute row in PARTS of each range, which any worker may claim; it waits for parts of other rows first.
* sync row: no worker continues before all have arrived.
* branch and jump rows: continue at row TARGET, on a predicate or always. A sync precedes each of them, so that all
  workers take the same path. An endless step can be left at a jump with TRUTH.
* repeat row: go back to row TARGET until all iterations are done. Each worker counts for itself, so none need wait.
* iteration row: continue at row TARGET in some iterations of the enclosing loop, which each worker counts.

The first 64 bytes of a worker's scratch area belong to the executor (see Scratch), codelets use what follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from time import CLOCK_MONOTONIC

import numpy as np

from engine.codelets.language.build import codelet, inner
from engine.codelets.language.memory import (
    call_address,
    call_code,
    fetch_and_max,
    floating_point_state,
    flush_to_zero,
    load_acquire,
    load_i8,
    set_floating_point_state,
    store_i64,
    store_release,
)
from engine.codelets.language.record import word
from engine.codelets.threads.waiting import WaitingBlock, announce, wait_until
from engine.errors import InternalError
from engine.machine_code.abi import Scratch
from engine.program.control_words import CONTROL_LINE, COUNTERS
from engine.runtime.buffers import aligned_zeros

assert Scratch.ITERATION + COUNTERS <= Scratch.BYTES // 8
LINE_BYTES = 8 * CONTROL_LINE
RELEASED = 2
"""Word of a worker's line: the number of barriers that its group has passed."""
GROUP = 8
"""Most workers that wait for each other one by one; of more, groups do, which often share a cache."""


class RowKind(IntEnum):
    """Kinds of rows. Workers take branches and jumps together: a sync precedes each."""

    COMPUTE = 0
    SYNC = 1
    BRANCH = 2
    JUMP = 3
    REPEAT = 4
    ITERATION = 5
    CLAIMED = 6


PARTS = 4
"""Parts of a worker's range that other workers may claim."""
COMPUTING = (RowKind.COMPUTE, RowKind.CLAIMED)
CONTROL_FLOW = (RowKind.BRANCH, RowKind.JUMP, RowKind.REPEAT, RowKind.ITERATION)


class Column(IntEnum):
    """Columns of the step table. From RANGES on: lo and hi of worker 0, lo and hi of worker 1, ..."""

    KIND = 0
    CODELET = 1  # address
    PARAMETERS = 2  # address; of repeats and jumps per iteration: the number of a worker's counter
    TARGET = 3  # of all kinds of jumps: row number; of claimed rows: address of a word for each part
    PREDICATE = 4  # of branches: address of a pred; of repeats: iterations; else address of a pred per iteration;
    # of claimed rows: address of the first of the words, up to TARGET, whose parts must be complete
    TRUTH = 5  # of conditional jumps: the value for which they jump; of others: an interrupted call may leave here;
    # of claimed rows: parts of each range
    RANGES = 6


class State(IntEnum):
    """Words of the state block, shared by the host and the workers of one call."""

    TABLE = 0
    ROWS = 1
    COLUMNS = 2
    STEPS = 3
    FIRST = 4  # the first step of these workers; earlier segments have done the steps before it
    STOP = 5  # a request of the host to end: see Stop
    STOP_AT = 6  # worker 0's answer: no worker begins this step
    COMPLETED = 7  # steps that all workers have finished
    ABORT = 8  # a worker is missing: the others stop waiting for it
    LEAVE_AT = 9  # worker 0's answer: a worker that has passed so many barriers leaves at the next jump with TRUTH
    HELD = 10  # steps that may be complete but not TAKEN before the workers wait; 0 lets them run
    TAKEN = 11  # steps whose results the host has taken
    WAITS = 12  # number of times the workers waited for TAKEN
    CHANGE = 13  # the host requests another number of workers: these end after their step
    DEADLINE = 14  # time at which worker 0 requests CHANGE itself; ns of CLOCK_MONOTONIC, 0 is never
    WAITING = 16  # from here on a waiting block
    CLOCK = 24  # address of clock_gettime, then space for a timespec
    ASLEEP = 32  # number of sleeping workers
    ARRIVALS = 48  # from here on LINE_BYTES for each worker: its number of barriers, then of sleeps, then RELEASED


class Stop(IntEnum):
    """Requests of the host to end a call."""

    AFTER_STEP = 1
    INSIDE_STEP = 2  # at a jump that allows it, or after the step, whichever comes first


@inner
def _have_arrived(state: int, own: int, number: int, first: int, end: int, step: int) -> bool:
    """Waits until each `step`-th worker from `first` on has arrived at a barrier; False if one never will."""
    waiting, asleep = state + 8 * State.WAITING, state + 8 * State.ASLEEP
    for other in range(first, end, step):
        awaited = state + 8 * State.ARRIVALS + LINE_BYTES * other
        if not wait_until(awaited, number, waiting, asleep, own + 8, state + 8 * State.ABORT):
            return False
    return True


@inner
def _barrier(state: int, worker: int, workers: int) -> bool:
    """Waits for all workers; False if one of them will never arrive.

    Of many workers, the first of each group waits for its group, then for the other groups, and releases its own.
    """
    if workers == 1:
        return True
    arrivals, waiting, asleep = state + 8 * State.ARRIVALS, state + 8 * State.WAITING, state + 8 * State.ASLEEP
    own, first = arrivals + LINE_BYTES * worker, worker // GROUP * GROUP
    number, released = word(own, 0) + 1, arrivals + LINE_BYTES * first + 8 * RELEASED
    if workers <= GROUP:
        announce(own, number, waiting, asleep)
        return _have_arrived(state, own, number, 0, workers, 1)
    if worker != first:
        announce(own, number, waiting, asleep)
        return wait_until(released, number, waiting, asleep, own + 8, state + 8 * State.ABORT)
    if not _have_arrived(state, own, number, first + 1, min(first + GROUP, workers), 1):
        return False
    announce(own, number, waiting, asleep)
    if not _have_arrived(state, own, number, 0, workers, GROUP):
        return False
    announce(released, number, waiting, asleep)
    return True


@inner
def _run_claimed(row: int, state: int, worker: int, workers: int, scratch: int) -> bool:
    """Runs the parts of a claimed row that no other worker runs, own ones first; False if another never arrives.

    The words of parts grow: after b barriers, equal for all workers, 2b - 1 means claimed and 2b complete.
    """
    own = state + 8 * State.ARRIVALS + LINE_BYTES * worker
    waiting, asleep = state + 8 * State.WAITING, state + 8 * State.ASLEEP
    complete, first = 2 * word(own, 0), word(row, Column.TARGET)
    for awaited in range(word(row, Column.PREDICATE), first, 8):
        if not wait_until(awaited, complete, waiting, asleep, own + 8, state + 8 * State.ABORT):
            return False
    parts = word(row, Column.TRUTH)
    for k in range(parts * workers):
        part = (k + parts * worker) % (parts * workers)
        claim = first + 8 * part
        if load_acquire(claim) < complete - 1 and fetch_and_max(claim, complete - 1) < complete - 1:
            lo, hi = word(row, Column.RANGES + 2 * (part // parts)), word(row, Column.RANGES + 2 * (part // parts) + 1)
            begin = lo + (hi - lo) * (part % parts) // parts
            end = lo + (hi - lo) * (part % parts + 1) // parts
            if begin < end:
                call_code(word(row, Column.CODELET), word(row, Column.PARAMETERS), begin, end, scratch)
            announce(claim, complete, waiting, asleep)
    return True


@inner
def _wait_for_space(state: int, worker: int, workers: int, step: int) -> bool:
    """Waits while HELD complete steps are not TAKEN by the host; False if a worker will never arrive."""
    if not _barrier(state, worker, workers):
        return False
    if worker != 0:
        return True
    store_release(state + 8 * State.COMPLETED, step)
    held = word(state, State.HELD)
    if step == word(state, State.STEPS) or step - load_acquire(state + 8 * State.TAKEN) < held:
        return True
    store_i64(state + 8 * State.WAITS, word(state, State.WAITS) + 1)
    while step - load_acquire(state + 8 * State.TAKEN) >= held and load_acquire(state + 8 * State.STOP) == 0:
        if load_acquire(state + 8 * State.ABORT) != 0:
            return False
        call_address(word(state, State.WAITING + WaitingBlock.YIELD), 0)
    return True


@inner
def _is_late(state: int) -> bool:
    """Whether the deadline has passed, if there is one."""
    deadline = word(state, State.DEADLINE)
    if deadline == 0:
        return False
    now = state + 8 * (State.CLOCK + 1)
    call_address(word(state, State.CLOCK), CLOCK_MONOTONIC, now)
    return 1_000_000_000 * word(now, 0) + word(now, 1) >= deadline


@inner
def _begin_step(state: int, worker: int, workers: int, step: int) -> bool:
    """The step boundary. All workers decide alike: later writes of a faster worker 0 concern later steps."""
    if word(state, State.HELD) != 0 and not _wait_for_space(state, worker, workers, step):
        return False
    if worker == 0 and step > word(state, State.FIRST) and _is_late(state):
        store_release(state + 8 * State.CHANGE, 1)
    if worker == 0 and load_acquire(state + 8 * State.STOP) | load_acquire(state + 8 * State.CHANGE) != 0:
        store_release(state + 8 * State.STOP_AT, min(step, load_acquire(state + 8 * State.STOP_AT)))
    if not _barrier(state, worker, workers):
        return False
    if worker == 0:
        store_release(state + 8 * State.COMPLETED, step)
    return step < load_acquire(state + 8 * State.STOP_AT)


@inner
def _leaves(state: int, worker: int, workers: int) -> bool:
    """Whether a step is left at this jump. All agree: a barrier separates worker 0's answer and its effect."""
    if worker == 0 and load_acquire(state + 8 * State.STOP) == 2:
        if workers == 1:
            return True
        if word(state, State.LEAVE_AT) == 0:
            passed = word(state + 8 * State.ARRIVALS, 0)
            store_release(state + 8 * State.LEAVE_AT, passed + 1)
    leave_at = load_acquire(state + 8 * State.LEAVE_AT)
    return leave_at != 0 and word(state + 8 * State.ARRIVALS + LINE_BYTES * worker, 0) >= leave_at


@inner
def another_iteration(row: int, scratch: int) -> bool:
    """Counts an iteration, and returns whether there is another one. Resets the counter after the last."""
    counter = scratch + 8 * (Scratch.ITERATION + word(row, Column.PARAMETERS))
    iteration = word(counter, 0) + 1
    again = iteration < word(row, Column.PREDICATE)
    store_i64(counter, iteration if again else 0)
    return again


@inner
def is_followed_now(row: int, scratch: int) -> bool:
    """Whether a worker jumps, at a row with a predicate per iteration, in the current iteration of its loop."""
    iteration = word(scratch, Scratch.ITERATION + word(row, Column.PARAMETERS))
    return (load_i8(word(row, Column.PREDICATE) + iteration) != 0) == (word(row, Column.TRUTH) != 0)


@inner
def _run_rows(state: int, worker: int, workers: int, scratch: int) -> bool:
    """Runs all rows of one step; False if the step cannot be finished."""
    row_bytes = 8 * word(state, State.COLUMNS)
    first = word(state, State.TABLE)
    end = first + row_bytes * word(state, State.ROWS)
    row = first
    while row < end:
        kind = word(row, Column.KIND)
        if kind == 0:
            lo, hi = word(row, Column.RANGES + 2 * worker), word(row, Column.RANGES + 2 * worker + 1)
            if lo < hi:
                call_code(word(row, Column.CODELET), word(row, Column.PARAMETERS), lo, hi, scratch)
            row += row_bytes
        elif kind == 1:
            if not _barrier(state, worker, workers):
                return False
            row += row_bytes
        elif kind == 3:
            if word(row, Column.TRUTH) != 0 and _leaves(state, worker, workers):
                return False
            row = first + row_bytes * word(row, Column.TARGET)
        elif kind == 4:
            if word(row, Column.TRUTH) != 0 and _leaves(state, worker, workers):
                return False
            row = first + row_bytes * word(row, Column.TARGET) if another_iteration(row, scratch) else row + row_bytes
        elif kind == 5:
            row = first + row_bytes * word(row, Column.TARGET) if is_followed_now(row, scratch) else row + row_bytes
        elif kind == 2:
            taken = (load_i8(word(row, Column.PREDICATE)) != 0) == (word(row, Column.TRUTH) != 0)
            row = first + row_bytes * word(row, Column.TARGET) if taken else row + row_bytes
        else:
            if not _run_claimed(row, state, worker, workers, scratch):
                return False
            row += row_bytes
    return True


@codelet
def executor(state: int, worker: int, workers: int, scratch: int) -> None:
    """Runs the steps of one call as one of its workers. As a codelet it is cached, and runs without the GIL.

    A step that is left inside a loop counts as not begun: nothing has written a variable by then.
    """
    floating_point = floating_point_state()
    set_floating_point_state(flush_to_zero(floating_point))
    store_i64(scratch + 8 * Scratch.STEPS, word(state, State.STEPS))
    store_i64(scratch + 8 * Scratch.WORKER, worker)
    for counter in range(COUNTERS):
        store_i64(scratch + 8 * (Scratch.ITERATION + counter), 0)
    step = word(state, State.FIRST)
    while _begin_step(state, worker, workers, step):
        store_i64(scratch + 8 * Scratch.STEP, step)
        if not _run_rows(state, worker, workers, scratch):
            break
        step += 1
    set_floating_point_state(floating_point)


def compute_row(codelet_address: int, parameters: int, ranges: Sequence[tuple[int, int]]) -> list[int]:
    """A row that runs a codelet on each worker's units lo <= unit < hi."""
    head = [RowKind.COMPUTE, codelet_address, parameters, 0, 0, 0]
    return [*head, *(bound for interval in ranges for bound in interval)]


def claimed_row(computes: list[int], words: int, awaited: int, parts: int = PARTS) -> list[int]:
    """A row like the compute row `computes`, with each range in `parts` that workers claim.

    `words` is the address of int64 [parts * workers], 0 before a call. The row waits until all parts with words from
    address `awaited` up to `words` are complete.
    """
    return [RowKind.CLAIMED, *computes[1 : Column.TARGET], words, awaited, parts, *computes[Column.RANGES :]]


def control_row(
    kind: RowKind, workers: int, target: int = 0, value: int = 0, when: bool = False, counter: int = 0
) -> list[int]:
    """A sync, or a jump to row `target`.

    `value` is the address of a branch's pred, that of a pred for each iteration, or the iterations of a repeat row. A
    pred jumps if it is `when`; at other jumps an interrupted call may leave its step if `when`. Each worker counts for
    itself, in its `counter`.
    """
    return [kind, 0, counter, target, value, int(when)] + [0] * (2 * workers)


def step_table(rows: Sequence[Sequence[int]], workers: int) -> np.ndarray:
    """The step table of these rows, int64 [rows, 6 + 2 * workers]; raises InternalError for invalid ones."""
    for number in range(len(rows)):
        _check_row(rows, number, workers)
    return np.array(rows, np.int64).reshape(len(rows), Column.RANGES + 2 * workers)


def _check_row(rows: Sequence[Sequence[int]], number: int, workers: int) -> None:
    row = rows[number]
    if len(row) != Column.RANGES + 2 * workers:
        expected = Column.RANGES + 2 * workers
        raise InternalError(f"Expected {expected} columns for {workers} workers. Received: {len(row)} in row {number}.")
    kind = row[Column.KIND]
    if kind in CONTROL_FLOW and not 0 <= row[Column.TARGET] <= len(rows):
        raise InternalError(f"Expected a target among {len(rows)} rows. Received row {number}: {row}.")
    if kind not in tuple(RowKind) or (kind in COMPUTING and not row[Column.CODELET]):
        raise InternalError(f"Expected a known kind, and the codelet of a compute row. Received row {number}: {row}.")


def new_state(workers: int) -> np.ndarray:
    """A state block for calls with this many workers, int64."""
    return aligned_zeros(8 * State.ARRIVALS + LINE_BYTES * workers).view(np.int64)


def new_scratch(workers: int, codelet_bytes: int) -> np.ndarray:
    """Aligned scratch areas, uint8 [workers, bytes]: the executor's words, then the codelets' bytes."""
    row_bytes = -(-(Scratch.BYTES + codelet_bytes) // LINE_BYTES) * LINE_BYTES
    return aligned_zeros(workers * row_bytes).reshape(workers, row_bytes)
