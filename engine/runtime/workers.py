"""Runs a step table for many steps on all workers."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from engine.codelets.threads.waiting import WaitingBlock, pauses_per_second
from engine.errors import InternalError
from engine.machine_code.abi import c_function
from engine.runtime.executor import Column, State, Stop, executor, new_state
from engine.runtime.native_threads import NativeThreadPool, Watch, attend
from engine.runtime.time_limit import TimeLimit

PAUSE_SECONDS = 0.0002
"""Seconds for which a worker spins before it sleeps: a wake-up takes some 50 microseconds, and few waits are longer."""
LONGEST_SLEEP_NANOSECONDS = 10_000_000
"""Nanoseconds after which a sleeping worker checks for itself, should a wake-up be lost."""
_WAITING = slice(int(State.WAITING), State.WAITING + WaitingBlock.WORDS)


@cache
def pauses_before_sleep() -> int:
    """Number of pause instructions of a waiting worker before it sleeps."""
    return int(PAUSE_SECONDS * pauses_per_second())


@cache
def _waiting_block() -> np.ndarray:
    block = np.zeros(WaitingBlock.WORDS, np.int64)
    block[WaitingBlock.PAUSES] = pauses_before_sleep()
    block[WaitingBlock.YIELD], block[WaitingBlock.SYSCALL] = c_function("sched_yield"), c_function("syscall")
    block[WaitingBlock.NANOSECONDS] = LONGEST_SLEEP_NANOSECONDS
    return block


def begin_call(steps: int, state: np.ndarray, held: int = 0) -> None:
    """Initialises the state block for a whole call, with no step complete."""
    state[:] = 0
    state[State.STEPS] = steps
    state[State.HELD] = held
    state[_WAITING] = _waiting_block()
    state[State.CLOCK] = c_function("clock_gettime")


def begin_segment(
    table: np.ndarray, steps: int, first: int, workers: int, scratch: np.ndarray, state: np.ndarray
) -> None:
    """Points the state block at a step table, for the steps from `first` on; raises InternalError for other shapes."""
    if table.shape[1] != Column.RANGES + 2 * workers or len(scratch) != workers or not table.flags.c_contiguous:
        raise InternalError(
            f"Expected a contiguous table of {Column.RANGES + 2 * workers} columns, {workers} scratch areas. "
            f"Received: table {table.shape}, scratch {scratch.shape}."
        )
    state[State.TABLE] = table.ctypes.data
    state[State.ROWS], state[State.COLUMNS] = table.shape
    state[State.STOP_AT] = steps
    if state[State.CHANGE]:  # left by the previous segment
        state[State.FIRST] = first
        state[State.CHANGE] = state[State.LEAVE_AT] = 0
        state[State.ASLEEP :] = 0


def request_stop(state: np.ndarray, inside_step: bool = False) -> None:
    """Asks the running call to end at its next step boundary; may be called from any thread.

    With `inside_step` a long loop is left between two of its iterations: its step then counts as not begun.
    """
    state[State.STOP] = Stop.INSIDE_STEP if inside_step else Stop.AFTER_STEP


def request_change(state: np.ndarray) -> None:
    """Asks the workers to end at their next step boundary, so that another number of them can go on."""
    state[State.CHANGE] = 1


def completed_steps(state: np.ndarray) -> int:
    """Number of steps that all workers have finished; valid during the call and after an interruption."""
    return int(state[State.COMPLETED])


def state_of_one_step(table: np.ndarray, scratch: np.ndarray) -> np.ndarray:
    """A state block before a call of one step, by as many workers as there are scratch areas."""
    workers = len(scratch)
    state = new_state(workers)
    begin_call(1, state)
    begin_segment(table, 1, 0, workers, scratch, state)
    return state


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

    `table`, `scratch` and `state` come from `step_table`, `new_scratch` and `new_state` in executor.py, for `workers`
    workers; a state block serves one call at a time. With `inline` the calling thread is worker 0: one thread less is
    started and no caller woken at the end, but Ctrl-C waits for the call, so use it for calls of a few milliseconds.
    With `held` the workers wait while that many complete steps are not TAKEN. Raises KeyboardInterrupt after the step
    during which it came, or inside a long loop of that step if it does not end soon, and InternalError when a worker
    fails.
    """
    begin_call(steps, state, held)
    return run_segment(table, steps, 0, workers, scratch, state, inline)


def run_segment(
    table: np.ndarray,
    steps: int,
    first: int,
    workers: int,
    scratch: np.ndarray,
    state: np.ndarray,
    inline: bool = False,
    watch: Watch | None = None,
    deadline: int = 0,
    limit: TimeLimit | None = None,
    interrupt: Callable[[], None] | None = None,
) -> int:
    """Runs the steps from `first` on of a call that `begin_call` has begun; returns how many are complete.

    These are fewer than `steps` only after `request_stop` or `request_change`, or when the deadline, in nanoseconds
    of the monotonic clock, has passed. `interrupt` is called when workers must leave their step. All else is as in
    `run_table`. Raises CallTimeout if the time of `limit` ends first.
    """
    if steps <= first:
        return completed_steps(state)
    begin_segment(table, steps, first, workers, scratch, state)
    state[State.DEADLINE] = deadline
    if inline and workers == 1 and watch is None:
        executor(state.ctypes.data, 0, 1, scratch.ctypes.data)
    else:
        pool = NativeThreadPool(state, workers, scratch, pauses_before_sleep(), inline, watch)

        def stop(inside_step: bool) -> None:
            request_stop(state, inside_step)
            if inside_step and interrupt is not None:
                interrupt()

        attend(pool, stop, watch, limit)
    completed = completed_steps(state)
    if limit is not None and completed < steps and limit.left() == 0:
        raise limit.error(f"one in step {completed + 1} of {steps}")
    return completed
