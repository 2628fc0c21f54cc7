"""A worker's wait for another: it pauses for a while, then it sleeps until it is woken.

A sleeping worker frees its core and keeps its claim to it. `sched_yield` does not do that: a thread that yields to
a thread of another process may count as having used up its time slice, and then waits milliseconds at every barrier.

A *waiting block* sets how long to pause, and which functions to call.
"""

from __future__ import annotations

import time
from enum import IntEnum
from functools import cache

from engine.codelets.language.build import codelet, inner
from engine.codelets.language.memory import (
    call_address,
    fence,
    fetch_and_add,
    load_acquire,
    load_i64,
    pause,
    store_i64,
    store_release,
)
from engine.machine_code.processor import ARM

FUTEX, GETTID = (98, 178) if ARM else (202, 186)
"""Numbers of system calls of Linux."""
FUTEX_WAIT_PRIVATE, FUTEX_WAKE_PRIVATE = 128, 129
EVERYBODY = 1 << 30
SPINS = 30
"""Pauses before the first check whether a worker will never arrive."""
SLEEPS_IN_A_ROW, HASTE = 3, 100
"""Number of consecutive sleeps after which a worker divides its pauses before the next by HASTE."""
PAUSES_TIMED = 1000
"""Pauses in a measurement of the duration of one."""


class WaitingBlock(IntEnum):
    """Words of a waiting block."""

    PAUSES = 0  # before a worker sleeps
    YIELD = 1  # address of sched_yield
    SYSCALL = 2  # address of syscall
    SECONDS = 4  # longest sleep, a timespec: an abort does not wake a sleeper
    NANOSECONDS = 5
    WORDS = 6


@inner
def announce(word: int, value: int, waiting: int, asleep: int) -> None:
    """Stores a value that others wait for, and wakes them. `asleep` is the address of the number of sleepers."""
    store_release(word, value)
    fence()
    if load_acquire(asleep) != 0:
        syscall = load_i64(waiting + 8 * WaitingBlock.SYSCALL)
        call_address(syscall, FUTEX, word, FUTEX_WAKE_PRIVATE, EVERYBODY)


@inner
def wait_until(word: int, value: int, waiting: int, asleep: int, sleeps: int, abort: int) -> bool:
    """Waits until a word is at least `value`; False if the word at `abort` is set meanwhile.

    `sleeps` is the address of a word of this worker: how many of its last waits have ended in sleep. After several,
    other threads compete for the core, perhaps the one that is waited for, and long pauses are in vain.
    """
    if load_acquire(word) >= value:
        return True
    slept = load_i64(sleeps)
    pauses = load_i64(waiting + 8 * WaitingBlock.PAUSES)
    if slept >= SLEEPS_IN_A_ROW:
        pauses //= HASTE
    spins = 0
    while load_acquire(word) < value:
        spins += 1
        if spins < SPINS:
            pause()
        elif load_acquire(abort) != 0:
            return False
        elif spins < pauses:
            pause()
        else:
            sleep_until(word, value, waiting, asleep)
    store_i64(sleeps, slept + 1 if spins >= pauses else 0)
    return True


@inner
def sleep_until(word: int, value: int, waiting: int, asleep: int) -> None:
    """Sleeps until `announce`, or not at all if that was called already. The futex compares a word's low half."""
    fetch_and_add(asleep, 1)
    fence()
    seen = load_acquire(word)
    if seen < value:
        syscall, longest = load_i64(waiting + 8 * WaitingBlock.SYSCALL), waiting + 8 * WaitingBlock.SECONDS
        call_address(syscall, FUTEX, word, FUTEX_WAIT_PRIVATE, seen & 0xFFFFFFFF, longest)
    fetch_and_add(asleep, -1)


@codelet
def pause_often(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Pauses hi - lo times."""
    for _ in range(lo, hi):
        pause()


@cache
def pauses_per_second() -> float:
    """Pauses of this processor in a second: processors differ a hundredfold.

    The shortest of a few timings counts, as other threads may have had the core during one.
    """
    pause_often(0, 0, 1, 0)
    least = 1.0
    for _ in range(5):
        begin = time.perf_counter()
        pause_often(0, 0, PAUSES_TIMED, 0)
        least = min(least, time.perf_counter() - begin)
    return PAUSES_TIMED / least
