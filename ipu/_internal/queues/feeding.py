"""The thread that fills the ring of an infeed."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

import tensorflow as tf
from tensorflow.python.eager import context

if TYPE_CHECKING:
    from engine.runtime.rings import InfeedRing

FIRST_NAP, LONGEST_NAP, LONGEST_FORESEEN = 0.00005, 0.002, 0.02
"""Seconds between polls of the ring. They depend on how fast a program emptied the ring before the last poll."""


class FeederWork(ABC):
    """The thread's work. It has no reference to the Feeder, which may be collected meanwhile.

    With `ahead` it fills the ring; otherwise it puts an element when a program waits.
    """

    def __init__(self, ring: InfeedRing, running: threading.Event, ahead: bool) -> None:
        self._ring, self._running, self._ahead = ring, running, ahead
        self._served = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        """Feeds until the ring is closed, at the end of the data set or by `stop`."""
        self._guarded(self._run)

    def _run(self) -> None:
        with context.eager_mode():  # also in programs that have switched it off
            while self._wait_for_space():
                self._feed()

    def _guarded(self, work: Callable[[], None]) -> None:
        """Does the work of a thread; the program that waits for elements, or the next one, raises its error."""
        try:
            work()
        except BaseException as error:
            self.failure = error
            self._ring.close(error)

    @abstractmethod
    def _feed(self) -> None:
        """Puts elements for which the ring has space; closes it with an error at their end."""

    def _wait_for_space(self) -> bool:
        """Waits until the ring has space; False if it was closed.

        A full ring of a running program is refilled when half of it is free: fewer wake-ups, no less data ahead.
        """
        if not self._ahead:
            return self._wait_for_need()
        nap, wanted, before = FIRST_NAP, 1, 0
        while not self._ring.closed and (space := self._ring.space()) < wanted:
            if self._running.is_set():
                wanted = (self._ring.slots + 1) // 2
                if 0 < before < space:
                    # Half of the time until so much is free, at the rate since the last poll.
                    foreseen = nap * (wanted - space) / (2 * (space - before))
                    nap = max(FIRST_NAP, min(foreseen, LONGEST_FORESEEN))
                else:
                    nap = min(2 * nap, LONGEST_NAP)
                before = space
                time.sleep(nap)
            elif space:
                break
            else:
                self._running.wait()
                nap = FIRST_NAP
        return not self._ring.closed

    def _wait_for_need(self) -> bool:
        """Waits until a program waits for an element; False if the ring was closed."""
        while not self._ring.closed:
            waits = self._ring.device_waits
            if waits != self._served:
                self._served = waits
                return True
            self._running.wait()
            time.sleep(FIRST_NAP)
        return False


def end_of_dataset() -> tf.errors.OutOfRangeError:
    return tf.errors.OutOfRangeError(
        None,
        None,
        "Expected the dataset of the infeed queue to have an element for each iteration. Received: its end. "
        "Call repeat() on it, or run fewer iterations, and initialize the queue again.",
    )
