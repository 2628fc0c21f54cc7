"""The thread pool of a call, started and joined by machine code: no thread waits for the GIL at its start or end.

A *thread pool block*, int64 words that the host fills in, says what the threads run and which functions they call. Its
members follow, one for each worker. The calling thread is worker 0, or sleeps until the last worker has left.

Worker threads that stay between the brief calls of a process, in machine code.

Starting and joining a thread takes as long as some calls. Persistent threads wait for the next call instead: they pause
for a while, as the next call often follows at once, and then sleep. They use a thread pool block, in which some words
are for them alone.
"""

from __future__ import annotations

from enum import IntEnum

from engine.codelets.language.build import codelet, inner
from engine.codelets.language.intrinsic import intrinsic
from engine.codelets.language.memory import (
    I32,
    I64,
    call_code,
    fence,
    fetch_and_add,
    load_acquire,
    load_i8,
    loaded_i64,
    pause,
    store_i64,
    store_release,
)
from engine.codelets.language.record import word
from engine.codelets.threads.waiting import (
    FUTEX,
    FUTEX_WAIT_PRIVATE,
    FUTEX_WAKE_PRIVATE,
    GETTID,
    announce,
    sleep_until,
    wait_until,
)
from engine.machine_code.llvm import ir

PR_SET_NAME, RUSAGE_THREAD = 15, 1
AFFINITY_WORDS = 16
"""Words of an affinity mask: 1024 cores."""


class ThreadPool(IntEnum):
    """Words of a thread pool block. The addresses are of functions of the C library."""

    EXECUTOR = 0
    STATE = 1
    ABORT = 2  # address of the word that says that a worker will never arrive
    WORKERS = 3
    FIRST = 4  # the first worker with its own thread: 1 if the caller is worker 0
    SCRATCH = 5
    SCRATCH_BYTES = 6  # of each worker
    MEMBER = 7  # address of the code that a thread runs
    FAILURE = 8  # result of pthread_create where it failed
    STARTED = 9  # threads that were created
    JOINED = 10  # whether all of them have ended
    SECONDS = 11  # maximum time of a wait, a timespec
    NANOSECONDS = 12
    PAUSES = 13  # before a caller who joins a thread sleeps
    CORES = 14  # address of the core numbers, one for each worker; 0 lets the operating system decide
    SYSCALL = 16
    CREATE = 18  # pthread_create
    JOIN = 19  # pthread_join
    TRY_JOIN = 20  # pthread_tryjoin_np
    SET_AFFINITY = 21  # pthread_setaffinity_np
    GET_CORE = 22  # sched_getcpu
    GET_USAGE = 24  # getrusage
    OPEN = 25
    READ = 26
    CLOSE = 27
    CONTROL = 28  # prctl
    ACCOUNTING = 29  # address of the name of the file in which the operating system reports a thread's delay
    LOST = 30  # calls in which a thread has lost its core to another one, counted for each persistent thread and caller
    ABORTED = 31  # where ABORT points while there is no call
    LEFT = 32  # threads that have left: a futex
    ASLEEP = 33  # whether the caller sleeps on it
    REQUEST = 40  # the number of the last call that persistent threads were asked for: a futex
    SLEEPERS = 41  # persistent threads that sleep on it
    WAITING = 42  # from here on a waiting block, for persistent threads
    ALL = 48  # a mask of the cores of the process
    ONE = ALL + AFFINITY_WORDS  # a mask of one core
    WORDS = ONE + AFFINITY_WORDS


class Member(IntEnum):
    """Words of one member of a thread pool block."""

    POOL = 0  # address
    WORKER = 1
    HANDLE = 2  # a pthread_t
    THREAD = 3  # the operating system's thread id
    DELAY = 4  # nanoseconds for which it was runnable but not running
    DONE = 5  # the number of the last call that a persistent thread has left
    NAME = 6  # the thread's name, 16 bytes
    TEXT = 8  # buffer for the text of the delay file
    USAGE = TEXT + 16  # buffer for a struct rusage
    CORE = USAGE + 18  # of a persistent thread: where it ran before it slept
    WORDS = USAGE + 24


TEXT_BYTES = 8 * (Member.USAGE - Member.TEXT)
VOLUNTARY, INVOLUNTARY = 16, 17  # the words of a struct rusage that count context switches, ru_nvcsw and ru_nivcsw


@intrinsic
def call_function(builder: ir.IRBuilder, pool: ir.Value, number: ir.Value, *arguments: ir.Value) -> ir.Value:
    """Calls the C function whose address is a word of a thread pool block, and returns its result, an int."""
    function = ir.FunctionType(I32, [I64] * len(arguments))
    address = loaded_i64(builder, builder.add(pool, builder.shl(number, I64(3))))
    return builder.sext(builder.call(builder.inttoptr(address, function.as_pointer()), arguments), I64)


@inner
def member_of(pool: int, worker: int) -> int:
    """The address of a worker's words."""
    return pool + 8 * (ThreadPool.WORDS + Member.WORDS * worker)


@inner
def _lost_cores(pool: int, member: int) -> int:
    """Number of times that another thread has taken the calling thread's core."""
    usage = member + 8 * Member.USAGE
    call_function(pool, ThreadPool.GET_USAGE, RUSAGE_THREAD, usage)
    return word(usage, INVOLUNTARY)


@inner
def _switched(pool: int, member: int) -> int:
    """The number of the calling thread's context switches: it slept, or another thread took its core."""
    return _lost_cores(pool, member) + word(member, Member.USAGE + VOLUNTARY)


@inner
def _delay(pool: int, member: int) -> int:
    """Nanoseconds for which the calling thread was runnable but not running: the second number of the delay file."""
    file = call_function(pool, ThreadPool.OPEN, word(pool, ThreadPool.ACCOUNTING), 0)
    if file < 0:
        return 0
    text = member + 8 * Member.TEXT
    length = call_function(pool, ThreadPool.READ, file, text, TEXT_BYTES)
    call_function(pool, ThreadPool.CLOSE, file)
    spaces = delay = 0
    for offset in range(max(length, 0)):
        character = load_i8(text + offset)
        if character == 32:
            spaces += 1
        elif spaces == 1:
            delay = 10 * delay + character - 48
    return delay


@inner
def _begin(pool: int, member: int) -> None:
    """Names the calling thread, and says which it is."""
    call_function(pool, ThreadPool.CONTROL, PR_SET_NAME, member + 8 * Member.NAME)
    store_release(member + 8 * Member.THREAD, call_function(pool, ThreadPool.SYSCALL, GETTID))


@inner
def work_as(pool: int, worker: int) -> None:
    """Runs the call as one of its workers."""
    scratch = word(pool, ThreadPool.SCRATCH) + worker * word(pool, ThreadPool.SCRATCH_BYTES)
    call_code(
        word(pool, ThreadPool.EXECUTOR), word(pool, ThreadPool.STATE), worker, word(pool, ThreadPool.WORKERS), scratch
    )


@codelet
def run_member(member: int, lo: int, hi: int, scratch: int) -> None:
    """The body of a pool thread. Threads get only `member`; the other arguments are undefined."""
    pool, worker = word(member, Member.POOL), word(member, Member.WORKER)
    _begin(pool, member)
    work_as(pool, worker)
    if _switched(pool, member):
        store_i64(member + 8 * Member.DELAY, _delay(pool, member))
    left = fetch_and_add(pool + 8 * ThreadPool.LEFT, 1) + 1
    fence()
    if (
        left == word(pool, ThreadPool.WORKERS) - word(pool, ThreadPool.FIRST)
        and load_acquire(pool + 8 * ThreadPool.ASLEEP) != 0
    ):
        call_function(pool, ThreadPool.SYSCALL, FUTEX, pool + 8 * ThreadPool.LEFT, FUTEX_WAKE_PRIVATE, 1)


@inner
def _restrict(pool: int, member: int, core: int, mask: int) -> None:
    """Restricts a thread to a core, if `mask` is ThreadPool.ONE; with ThreadPool.ALL lifts the restriction again."""
    one = pool + 8 * (ThreadPool.ONE + core // 64)
    store_i64(one, 1 << (core % 64))
    call_function(pool, ThreadPool.SET_AFFINITY, word(member, Member.HANDLE), 8 * AFFINITY_WORDS, pool + 8 * mask)
    store_i64(one, 0)


@inner
def _start(pool: int) -> bool:
    """Creates the threads; False if one cannot be created.

    Each starts on its own core; the last thread gets the caller's core, which is free when the caller sleeps.
    """
    workers, cores = word(pool, ThreadPool.WORKERS), word(pool, ThreadPool.CORES)
    own = call_function(pool, ThreadPool.GET_CORE, 0) if cores else -1
    offset = 0
    for worker in range(word(pool, ThreadPool.FIRST), workers):
        member = member_of(pool, worker)
        store_i64(member + 8 * Member.POOL, pool)
        store_i64(member + 8 * Member.WORKER, worker)
        failure = call_function(
            pool, ThreadPool.CREATE, member + 8 * Member.HANDLE, 0, word(pool, ThreadPool.MEMBER), member
        )
        if failure != 0:
            store_i64(pool + 8 * ThreadPool.FAILURE, failure)
            store_release(word(pool, ThreadPool.ABORT), 1)
            return False
        store_i64(pool + 8 * ThreadPool.STARTED, word(pool, ThreadPool.STARTED) + 1)
        if cores:
            while offset < workers and word(cores, offset) == own:
                offset += 1
            core = word(cores, offset) if offset < workers else own
            _restrict(pool, member, core, ThreadPool.ONE)
            _restrict(pool, member, core, ThreadPool.ALL)
            offset += 1
    return True


@inner
def join_all(pool: int) -> None:
    """Returns when the threads have ended. A thread that has left ends soon, so the caller pauses before it sleeps."""
    first = word(pool, ThreadPool.FIRST)
    for worker in range(first, first + word(pool, ThreadPool.STARTED)):
        handle = word(member_of(pool, worker), Member.HANDLE)
        pauses = word(pool, ThreadPool.PAUSES)
        while pauses > 0 and call_function(pool, ThreadPool.TRY_JOIN, handle, 0) != 0:
            pause()
            pauses -= 1
        if pauses <= 0:
            call_function(pool, ThreadPool.JOIN, handle, 0)
    store_i64(pool + 8 * ThreadPool.JOINED, 1)


@codelet
def start_threads(pool: int, lo: int, hi: int, scratch: int) -> None:
    """Starts the threads of a thread pool block."""
    _start(pool)


@codelet
def await_threads(pool: int, lo: int, hi: int, scratch: int) -> None:
    """Sleeps until all started threads have left, a signal comes or time is up; joins the threads if all have left."""
    left, asleep = pool + 8 * ThreadPool.LEFT, pool + 8 * ThreadPool.ASLEEP
    fetch_and_add(asleep, 1)
    fence()
    seen = load_acquire(left)
    started = word(pool, ThreadPool.STARTED)
    if seen < started:
        timespec = pool + 8 * ThreadPool.SECONDS
        call_function(pool, ThreadPool.SYSCALL, FUTEX, left, FUTEX_WAIT_PRIVATE, seen, timespec)
    fetch_and_add(asleep, -1)
    if load_acquire(left) >= started and word(pool, ThreadPool.JOINED) == 0:
        join_all(pool)


@codelet
def join_threads(pool: int, lo: int, hi: int, scratch: int) -> None:
    """Starts the threads with the caller as worker 0, runs its work, and joins the threads."""
    member = member_of(pool, 0)
    switched, before = _switched(pool, member), _delay(pool, member)
    if _start(pool):
        work_as(pool, 0)
        if _switched(pool, member) != switched:
            store_i64(member + 8 * Member.DELAY, _delay(pool, member) - before)
    join_all(pool)


@codelet
def run_persistent(member: int, lo: int, hi: int, scratch: int) -> None:
    """The body of a persistent thread: works in each call, and ends at a call without a state block."""
    pool, worker = word(member, Member.POOL), word(member, Member.WORKER)
    request, waiting = pool + 8 * ThreadPool.REQUEST, pool + 8 * ThreadPool.WAITING
    _begin(pool, member)
    number = word(member, Member.DONE) + 1
    while True:
        pauses = word(pool, ThreadPool.PAUSES)
        while load_acquire(request) < number and pauses > 0:
            pause()
            pauses -= 1
        while load_acquire(request) < number:
            store_release(member + 8 * Member.CORE, call_function(pool, ThreadPool.GET_CORE, 0))
            sleep_until(request, number, waiting, pool + 8 * ThreadPool.SLEEPERS)
        if word(pool, ThreadPool.STATE) == 0:
            break
        before = _lost_cores(pool, member)
        work_as(pool, worker)
        if _lost_cores(pool, member) != before:
            fetch_and_add(pool + 8 * ThreadPool.LOST, 1)
        announce(member + 8 * Member.DONE, number, waiting, pool + 8 * ThreadPool.ASLEEP)
        number += 1


@inner
def _avoid(pool: int, own: int, mask: int) -> None:
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
            _restrict(pool, member, word(cores, offset), mask)
        offset += 1


@codelet
def call_persistent(pool: int, lo: int, hi: int, scratch: int) -> None:
    """Runs a call with the caller as worker 0 and the persistent threads; without a state block, ends the threads."""
    number = word(pool, ThreadPool.REQUEST) + 1
    waiting, asleep = pool + 8 * ThreadPool.WAITING, pool + 8 * ThreadPool.ASLEEP
    own = -1
    is_call = word(pool, ThreadPool.STATE) != 0
    if is_call and word(pool, ThreadPool.CORES) != 0 and load_acquire(pool + 8 * ThreadPool.SLEEPERS) != 0:
        own = call_function(pool, ThreadPool.GET_CORE, 0)
        _avoid(pool, own, ThreadPool.ONE)
    announce(pool + 8 * ThreadPool.REQUEST, number, waiting, pool + 8 * ThreadPool.SLEEPERS)
    if own >= 0:
        _avoid(pool, own, ThreadPool.ALL)
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
        fetch_and_add(pool + 8 * ThreadPool.LOST, 1)
