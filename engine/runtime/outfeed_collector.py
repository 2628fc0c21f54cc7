"""A thread that drains the rings of outfeeds while programs run, so that programs need not wait for space."""

from __future__ import annotations

import threading
import time
from typing import Protocol

FIRST_NAP, SHORTEST_NAP, LONGEST_NAP = 0.0005, 0.00005, 0.002
"""Seconds between polls of a ring."""
IDLE_SECONDS = 0.5
"""Seconds for which the thread stays alive for the next program."""


class Emptied(Protocol):
    """An owner of a ring that fills up."""

    def drain(self) -> float:
        """Takes the rows in the ring; returns the fraction of it that was full, 0 to 1."""

    def fail(self, error: BaseException) -> None:
        """Ends the program that fills the ring with this error, as no thread empties it."""


class Collector:
    """One thread for all outfeeds of the process; it ends when no program with an outfeed runs for a while."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: list[Emptied] = []
        self._wanted = threading.Event()
        self._thread: threading.Thread | None = None

    def watch(self, outfeed: Emptied) -> None:
        """Drains `outfeed` from now on: a program that enqueues to it is about to run."""
        with self._lock:
            self._watched.append(outfeed)
            self._wanted.set()
            if self._thread is None or not self._thread.is_alive():  # a fork leaves a dead one
                self._thread = threading.Thread(target=self._run, name="ipu-outfeeds", daemon=True)
                self._thread.start()

    def leave(self, outfeed: Emptied) -> None:
        """Drains `outfeed` no longer: the program has ended."""
        with self._lock:
            self._watched.remove(outfeed)
            if not self._watched:
                self._wanted.clear()

    def _run(self) -> None:
        try:
            self._drain_all()
        except BaseException as error:
            with self._lock:
                self._thread = None
                for outfeed in self._watched:
                    outfeed.fail(error)

    def _drain_all(self) -> None:
        nap = FIRST_NAP
        while True:
            if not self._wanted.is_set():
                self._wanted.wait(IDLE_SECONDS)
                nap = FIRST_NAP
            with self._lock:
                watched = list(self._watched)
                if not watched and not self._wanted.is_set():
                    self._thread = None
                    return
            time.sleep(nap)
            fullest = max((outfeed.drain() for outfeed in watched), default=0.0)
            watched.clear()
            nap = max(nap / 2, SHORTEST_NAP) if fullest >= 0.5 else min(nap * 1.5, LONGEST_NAP)


collector = Collector()
