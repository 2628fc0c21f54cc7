"""The thread that calls batch callbacks while the engine runs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from engine.runtime.execution_locks import while_waiting

if TYPE_CHECKING:
    from engine.runtime.observer import RunningCall


SHORTEST_SLEEP, LONGEST_SLEEP = 5e-5, 1e-3
"""Seconds between two polls of the engine: doubled while no step completes."""

Report = Callable[[list[np.ndarray]], Any]
"""Takes the results of a step, each with a leading axis of the engine's steps; returns whether the run is to stop."""


class CallbackThread:
    """Observes one call of the engine, and reports its steps in order, each once it is complete.

    One reported step is `together` steps of the engine. The engine waits while `depth` reported steps have not been
    taken, unless `depth` is 0. It does not wait for a report that itself waits for the engine, to read a variable.
    """

    def __init__(self, report: Report, depth: int = 0, together: int = 1) -> None:
        self.held = depth * together
        self.stopped = False
        self.waits = 0
        self._report = report
        self._together = together
        self._ended = threading.Event()
        self._abandoned = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="ipu-callbacks", daemon=True)
        self._strategy = tf.distribute.get_strategy() if tf.distribute.has_strategy() else None

    def begin(self, call: RunningCall) -> None:
        """Starts the thread."""
        self._call = call
        self._thread.start()

    def end(self, completed: int) -> None:
        """Notes that the engine has ended: the steps it has completed will be reported, and no more."""
        self.waits = self._call.waits()
        self._ended.set()

    def finish(self) -> None:
        """Waits until all is reported; re-raises a callback's error. An interruption drops the steps not reported."""
        try:
            self._thread.join()
        except BaseException:
            self.abandon()
            raise
        if self._failure is not None:
            raise self._failure

    def abandon(self) -> None:
        """Reports no more; waits for the callback that is running."""
        self._abandoned.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        # A strategy's scope is thread-local.
        with contextlib.nullcontext() if self._strategy is None else self._strategy.scope():
            try:
                with while_waiting(self._go_on):
                    self._follow()
            except BaseException as failure:  # raised again by `finish`, in the thread that runs the model
                self._failure = failure
                self._call.stop()

    def _go_on(self) -> None:
        """Lets the engine continue: a report waits for the end of an execution, which may be its own."""
        if not self._ended.is_set():
            self._call.go_on()

    def _follow(self) -> None:
        reported, sleep = 0, SHORTEST_SLEEP
        while not self._abandoned.is_set():
            ended = self._ended.is_set()  # read first: no step completes after it is set
            completed = self._call.completed() // self._together
            for step in range(reported, completed):
                if self._abandoned.is_set():
                    return
                first, end = step * self._together, (step + 1) * self._together
                if self._report([result[first:end] for result in self._call.results]) and not self.stopped:
                    self.stopped = True
                    self._call.stop()
                self._call.taken(end)  # after `stop`: this wakes an engine that waits
            if ended:
                return
            sleep = SHORTEST_SLEEP if completed > reported else min(2 * sleep, LONGEST_SLEEP)
            reported = completed
            self._ended.wait(sleep)
