"""Processes that check plans, one after another; one that crashes or takes too long is replaced."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

from tests import forking
from tests.crossings.plan import Plan

LIMIT_SECONDS = 900.0
"""Seconds for one program in all its runs. The slowest take 40 seconds, and 300 where many others use the cores."""
PROGRAMS_OF_A_PROCESS = 80
"""Programs after which a process ends: TensorFlow keeps functions and kernels, which would make later ones slower."""


class Checked(NamedTuple):
    """The results of a plan: lines that differ, errors that plain Keras has raised, and the seconds it took."""

    plan: Plan
    found: list[str]
    raised: list[str]
    seconds: float


class Worker:
    """One process, which checks a plan at a time."""

    def __init__(self) -> None:
        forking.start_server()
        self.connection, other = forking.CONTEXT.Pipe()
        self.process = forking.CONTEXT.Process(target=_serve, args=(other,), daemon=True)
        self.process.start()
        other.close()
        self.plan: Plan | None = None
        self.since, self.count = 0.0, 0

    def give(self, plan: Plan) -> None:
        """Begins to check a plan."""
        self.plan, self.since = plan, time.monotonic()
        self.count += 1
        self.connection.send(str(plan))

    def take(self) -> Checked:
        """The result, once there is one; a crash or a hang also counts as a result."""
        assert self.plan is not None
        plan, seconds, end = self.plan, time.monotonic() - self.since, ""
        self.plan = None
        if not self.connection.poll():
            end = f"hang: it takes more than {LIMIT_SECONDS:.0f} s"
        else:
            try:
                return Checked(plan, *self.connection.recv(), seconds)
            except (EOFError, ConnectionResetError):
                self.process.join()
                end = f"crash: the process ended with {self.process.exitcode}"
        self.end()
        return Checked(plan, [end], [], seconds)

    def end(self) -> None:
        """Ends the process."""
        self.process.kill()
        self.process.join()
        self.connection.close()

    @property
    def is_over(self) -> bool:
        """Whether it checks no more plans."""
        return self.count >= PROGRAMS_OF_A_PROCESS or not self.process.is_alive()


def checked(plans: Iterable[Plan], processes: int) -> Iterator[Checked]:
    """Checks plans in `processes` processes; results come as they are ready."""
    waiting = iter(plans)
    workers: list[Worker] = []
    try:
        for plan in waiting:
            workers.append(Worker())
            workers[-1].give(plan)
            if len(workers) == processes:
                break
        while workers:
            worker = first_ready(workers)
            yield worker.take()
            plan = next(waiting, None)
            if worker.is_over or plan is None:
                worker.end()
                workers.remove(worker)
            if plan is not None:
                if worker not in workers:
                    worker = Worker()
                    workers.append(worker)
                worker.give(plan)
    finally:
        for worker in workers:
            worker.end()


def first_ready(workers: list[Worker]) -> Worker:
    """Waits for a worker that has a result, has crashed, or has taken too long."""
    while True:
        first = min(workers, key=lambda worker: worker.since)
        left = first.since + LIMIT_SECONDS - time.monotonic()
        ready = wait([worker.connection for worker in workers], timeout=max(0, left))
        for worker in workers:
            if worker.connection in ready:
                return worker
        if left <= 0:
            return first


class Checker:
    """Checks single plans in one process that is replaced as need be, for shrinking."""

    def __init__(self) -> None:
        self._worker: Worker | None = None

    def __call__(self, plan: Plan) -> Checked:
        if self._worker is None or self._worker.is_over:
            self.end()
            self._worker = Worker()
        self._worker.give(plan)
        return first_ready([self._worker]).take()

    def end(self) -> None:
        """Ends the process, if there is one."""
        if self._worker is not None and self._worker.process.is_alive():
            self._worker.end()


def _serve(connection: Connection) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    from tests.crossings.check import check, raised_by_keras

    # Keras collects garbage before each program, which takes half of the time if imported modules are scanned.
    gc.freeze()
    while True:
        with contextlib.suppress(EOFError):
            plan = Plan.read(connection.recv())
            connection.send(answer(check, raised_by_keras, plan))
            continue
        return


def answer(check: Callable[[Plan], list[str]], raised: Callable[[Plan], list[str]], plan: Plan) -> Any:
    """Differences of a plan, and errors of plain Keras; an error of the check itself is a difference."""
    try:
        return check(plan), raised(plan)
    except Exception as error:
        return [f"the check raises {error!r:.300}"], []
