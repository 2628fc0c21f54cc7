"""Worker threads that stay between the brief calls of a process, in machine code.

Starting and joining a thread takes as long as some calls. Persistent threads wait for the next call instead: they pause
for a while, as the next call often follows at once, and then sleep. They use a thread pool block, in which some words
are for them alone.
"""

from __future__ import annotations

from engine.codelets.host.rows import word
from engine.codelets.language.build import codelet, inner
from engine.codelets.language.memory import load_acquire, pause, store_i64, store_release
from engine.codelets.threads.thread_pool import (
    AFFINITY_WORDS,
    INVOLUNTARY,
    PR_SET_NAME,
    RUSAGE_THREAD,
    Member,
    ThreadPool,
    call_function,
    join_all,
    member_of,
    work_as,
)
from engine.codelets.threads.waiting import announce, fetch_and_add_in_order, sleep_until, wait_until


@inner
def _lost_cores(pool: int, member: int) -> int:
    """Number of times that another thread has taken the calling thread's core."""
    usage = member + 8 * Member.USAGE
    call_function(pool, ThreadPool.GET_USAGE, RUSAGE_THREAD, usage, 0, 0)
    return word(usage, INVOLUNTARY)


@codelet
def run_persistent(member: int, lo: int, hi: int, scratch: int) -> None:
    """The body of a persistent thread: works in each call, and ends at a call without a state block."""
    pool, worker = word(member, Member.POOL), word(member, Member.WORKER)
    request, waiting = pool + 8 * ThreadPool.REQUEST, pool + 8 * ThreadPool.WAITING
    call_function(pool, ThreadPool.CONTROL, PR_SET_NAME, member + 8 * Member.NAME, 0, 0)
    store_release(member + 8 * Member.THREAD, call_function(pool, ThreadPool.GET_THREAD, 0, 0, 0, 0))
    number = word(member, Member.DONE) + 1
    while True:
        pauses = word(pool, ThreadPool.PAUSES)
        while load_acquire(request) < number and pauses > 0:
            pause()
            pauses -= 1
        while load_acquire(request) < number:
            store_release(member + 8 * Member.CORE, call_function(pool, ThreadPool.GET_CORE, 0, 0, 0, 0))
            sleep_until(request, number, waiting, pool + 8 * ThreadPool.SLEEPERS)
        if word(pool, ThreadPool.STATE) == 0:
            break
        before = _lost_cores(pool, member)
        work_as(pool, worker)
        if _lost_cores(pool, member) != before:
            fetch_and_add_in_order(pool + 8 * ThreadPool.LOST, 1)
        announce(member + 8 * Member.DONE, number, waiting, pool + 8 * ThreadPool.ASLEEP)
        number += 1


@inner
def _restrict(pool: int, own: int, whether: bool) -> None:
    """Restricts a sleeping thread that last ran on the caller's core to another core, or lifts the restriction.

    Otherwise both may stay on one core for the whole call. Each thread has a core of its own among the process's.
    """
    cores, workers = word(pool, ThreadPool.CORES), word(pool, ThreadPool.WORKERS)
    offset = 0
    for worker in range(word(pool, ThreadPool.FIRST), workers):
        while offset < workers and word(cores, offset) == own:
            offset += 1
        member = member_of(pool, worker)
        if offset < workers and load_acquire(member + 8 * Member.CORE) == own:
            core = word(cores, offset)
            store_i64(pool + 8 * (ThreadPool.ONE + core // 64), 1 << (core % 64))
            mask = ThreadPool.ONE if whether else ThreadPool.ALL
            call_function(
                pool, ThreadPool.SET_AFFINITY, word(member, Member.HANDLE), 8 * AFFINITY_WORDS, pool + 8 * mask, 0
            )
            store_i64(pool + 8 * (ThreadPool.ONE + core // 64), 0)
        offset += 1


@codelet
def call_persistent(pool: int, lo: int, hi: int, scratch: int) -> None:
    """Runs a call with the caller as worker 0 and the persistent threads; without a state block, ends the threads."""
    number = word(pool, ThreadPool.REQUEST) + 1
    waiting, asleep = pool + 8 * ThreadPool.WAITING, pool + 8 * ThreadPool.ASLEEP
    own = -1
    is_call = word(pool, ThreadPool.STATE) != 0
    if is_call and word(pool, ThreadPool.CORES) != 0 and load_acquire(pool + 8 * ThreadPool.SLEEPERS) != 0:
        own = call_function(pool, ThreadPool.GET_CORE, 0, 0, 0, 0)
        _restrict(pool, own, True)
    announce(pool + 8 * ThreadPool.REQUEST, number, waiting, pool + 8 * ThreadPool.SLEEPERS)
    if own >= 0:
        _restrict(pool, own, False)
    if not is_call:
        join_all(pool)
        return
    caller = member_of(pool, 0)
    before = _lost_cores(pool, caller)
    work_as(pool, 0)
    for worker in range(word(pool, ThreadPool.FIRST), word(pool, ThreadPool.WORKERS)):
        done = member_of(pool, worker) + 8 * Member.DONE
        wait_until(done, number, waiting, asleep, caller + 8 * Member.CORE, pool + 8 * ThreadPool.FAILURE)
    if _lost_cores(pool, caller) != before:
        fetch_and_add_in_order(pool + 8 * ThreadPool.LOST, 1)
