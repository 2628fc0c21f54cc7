"""A thread of each process: it sends signs of this process, and asks for others while a collective takes long."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping

from engine.errors import ProcessError
from ipu._internal.processes.failures import no_answer, no_sign, no_watch
from ipu._internal.processes.signs import Sign, own_sign
from ipu._internal.processes.time_limits import COLLECTIVE, SILENCE, time_limit
from ipu._internal.processes.waiting import WaitingCollective

TICK = 0.25
"""Seconds between two looks."""
PATIENCE = 3.0
"""Seconds that the process has to raise an error; inside a call of MPI it cannot."""
logger = logging.getLogger("ipu")


class Link(ABC):
    """Connection by which a process asks the others for signs, beside the collectives. One thread calls it."""

    @abstractmethod
    def ask(self, ranks: Iterable[int]) -> None:
        """Asks each of these processes for a sign, without waiting for it."""

    @abstractmethod
    def end_all(self, error: ProcessError) -> None:
        """Prints an error and ends the processes, where this one cannot raise it."""

    @abstractmethod
    def answers(self, own: Callable[[], Sign]) -> list[tuple[int, Sign]]:
        """Returns the signs that have come, by rank. Sends the own sign to processes that have asked for it."""


class CollectiveWatch:
    """Follows the collectives of a process, each from `begin` to `end`.

    There is a time limit of silence, and one for each collective. In a long collective, a line of the log says for
    which processes it waits, and what they do, after each third of the limit of silence. `error` becomes a
    ProcessError if one of them gives no sign of life for that limit, because it is stopped, or if the collective takes
    longer than its own limit; a call of `unlimited` has none. Time in which this process itself is stopped does not
    count.
    """

    def __init__(self, rank: int, size: int, link: Link, pids: Mapping[int, int], unlimited: str) -> None:
        self.error: ProcessError | None = None
        self._call, self._count = "", 0
        self._rank, self._size, self._link, self._pids, self._unlimited = rank, size, link, pids, unlimited
        self._silence, self._limit = time_limit(SILENCE), time_limit(COLLECTIVE)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch over processes", daemon=True)
        self._thread.start()

    def begin(self, call: str) -> None:
        """Follows a collective."""
        self._call, self._count = call, self._count + 1

    def end(self) -> None:
        """Notes that the collective has ended."""
        self._call = ""

    def close(self) -> None:
        """Ends the thread."""
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._watch()
        except BaseException as error:
            self.error = no_watch(self._rank, error)
            self.error.__cause__ = error
            self._end_unless_raised(self._count)

    def _watch(self) -> None:
        now, count = time.monotonic(), 0
        waiting: WaitingCollective | None = None
        while not self._closing.wait(TICK):
            before, now = now, time.monotonic()
            answers = self._link.answers(lambda: own_sign(self._call))
            call = self._call
            if self.error is not None:
                self._end_unless_raised(count)
                return
            if not call:
                waiting = None
            elif waiting is None or count != self._count:
                waiting, count = (
                    WaitingCollective(call, [rank for rank in range(self._size) if rank != self._rank]),
                    self._count,
                )
            else:
                waiting.hear(answers, min(now - before, 4 * TICK))
                self._follow(waiting)

    def _end_unless_raised(self, count: int) -> None:
        end = time.monotonic() + PATIENCE
        while self._call and count == self._count and self.error is not None:
            if time.monotonic() > end:
                self._link.end_all(self.error)
            time.sleep(TICK)

    def _follow(self, waiting: WaitingCollective) -> None:
        if waiting.passes(self._silence / 9):
            self._link.ask(waiting.look(self._pids))
        if waiting.passes(self._silence / 3) and waiting.first(self._rank):
            logger.warning(
                "Process %d waits in %s for %.0f s: %s.", *(self._rank, waiting.call, waiting.seconds, waiting)
            )
        if waiting.silent(self._silence):
            self.error = no_sign(self._size, self._silence, waiting.call, str(waiting))
        elif waiting.seconds > self._limit and waiting.call != self._unlimited:
            self.error = no_answer(self._size, self._limit, waiting.call, str(waiting))
