"""Runs a step table for many steps on all workers."""

from __future__ import annotations

import ctypes
import os
from functools import cache

import numpy as np

from engine.errors import InternalError
from engine.runtime.executor import Column, State, Stop, executor
from engine.runtime.threads import run_workers


@cache
def yield_address() -> int:
    """The address of a C function `int f(void)` that lets another thread run."""
    function = ctypes.CDLL("kernel32").SwitchToThread if os.name == "nt" else ctypes.CDLL(None).sched_yield
    return int(ctypes.cast(function, ctypes.c_void_p).value or 0)


def _prepare(table: np.ndarray, steps: int, workers: int, scratch: np.ndarray, state: np.ndarray, held: int) -> None:
    if table.shape[1] != Column.RANGES + 2 * workers or len(scratch) != workers or not table.flags.c_contiguous:
        raise InternalError(
            f"Expected a contiguous table of {Column.RANGES + 2 * workers} columns, {workers} scratch areas. "
            f"Received: table {table.shape}, scratch {scratch.shape}."
        )
    state[:] = 0
    state[State.TABLE] = table.ctypes.data
    state[State.ROWS], state[State.COLUMNS] = table.shape
    state[State.STEPS] = state[State.STOP_AT] = steps
    state[State.YIELD] = yield_address()
    state[State.HELD] = held


def request_stop(state: np.ndarray, inside_step: bool = False) -> None:
    """Asks the running call to end at its next step boundary; may be called from any thread.

    With `inside_step` a long loop is left between two of its turns: its step then counts as not begun.
    """
    state[State.STOP] = Stop.INSIDE_STEP if inside_step else Stop.AFTER_STEP


def completed_steps(state: np.ndarray) -> int:
    """How many steps all workers have finished; valid during the call and after an interruption."""
    return int(state[State.COMPLETED])


def run_table(
    table: np.ndarray,
    steps: int,
    workers: int,
    scratch: np.ndarray,
    state: np.ndarray,
    inline: bool = False,
    held: int = 0,
) -> int:
    """Runs `steps` steps and returns how many were completed (fewer only after `request_stop`).

    `table`, `scratch`, `state`: of `step_table`, `new_scratch`, `new_state` in executor.py, for `workers`
    workers; a state block serves one call at a time. With `inline`, which needs one worker, the calling
    thread computes: no thread is started (saves some 0.1 ms), but Ctrl-C waits for the end, so use it for
    calls of a few milliseconds. With `held` the workers wait while so many complete steps are not TAKEN.
    Raises KeyboardInterrupt after the step during which it came, or inside a long loop of that step if it does
    not end soon, and InternalError when a worker fails.
    """
    if inline and workers != 1:
        raise InternalError(f"Expected one worker in the calling thread. Received: {workers}.")
    if steps <= 0:
        state[State.COMPLETED] = 0
        return 0
    _prepare(table, steps, workers, scratch, state, held)
    address, stride, state_address = scratch.ctypes.data, scratch.strides[0], state.ctypes.data

    def work(worker: int) -> None:
        executor(state_address, worker, workers, address + worker * stride)

    def abort() -> None:
        state[State.ABORT] = 1

    if inline:
        work(0)
    else:
        assert executor.address  # compiled here, where Ctrl-C still works
        run_workers(work, workers, lambda impatient: request_stop(state, impatient), abort)
    if state[State.FAILED_ROW]:
        raise InternalError(
            f"Expected rows of known kinds. Received row {int(state[State.FAILED_ROW]) - 1} of the table."
        )
    return completed_steps(state)
