"""Limits on the programs of files: instructions, levels of calls, bytes, and seconds of compilation.

A program is data that this process has not written. Within these limits it is read and compiled; above them
`ResourceLimit` names the limit, what was received, and how to raise it.
"""

from __future__ import annotations

import _thread
import argparse
import ctypes
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from typing import Any

from engine.errors import ConfigurationError, ResourceLimit
from engine.private_files import machine_memory, most_of_a_file

PROGRAM_BYTES_PER_INSTRUCTION = 256
"""Bytes of a program's JSON for each instruction that it may have; those of ResNet50 take 160."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a program from a file.

    `instructions` with calls inlined, `levels` of computations that call each other, `bytes` of the file and of the
    compiled program's memory (a quarter of the machine's memory, and all of it, if None), `seconds` of reading and
    compiling it.
    """

    instructions: int = 1 << 18
    levels: int = 64
    bytes: int | None = None
    seconds: float = 300.0

    @property
    def most_bytes(self) -> int:
        """The limit of a program's bytes in memory."""
        return machine_memory() if self.bytes is None else self.bytes

    @property
    def most_file_bytes(self) -> int:
        """The limit of a file's bytes."""
        return most_of_a_file() if self.bytes is None else self.bytes

    @property
    def program_bytes(self) -> int:
        """The most bytes of a program's JSON."""
        return PROGRAM_BYTES_PER_INSTRUCTION * self.instructions


NAMES = tuple(each.name for each in fields(Limits))
_USUAL = Limits()
_limits: ContextVar[Limits] = ContextVar("limits of programs from files", default=_USUAL)
_deadline: ContextVar[Deadline | None] = ContextVar("the time at which compilation must have ended", default=None)

_is_interruptible: ContextVar[bool] = ContextVar("an alarm is set", default=False)


@contextmanager
def limits(**given: float) -> Iterator[None]:
    """Reads and compiles programs from files with these limits, while the context is open; others stay as they are
    around it.

    Args:
        given: `instructions` with calls inlined (262,144 if not given), `levels` of computations that call each other
            (64), `bytes` of the file and of the compiled program's memory (a quarter of the machine's, and all of
            it), `seconds` of reading and compiling (300).

    Raises:
        ConfigurationError: another name, or a value that is not above 0.
    """
    token = _limits.set(replace(_limits.get(), **{name: _checked(name, value) for name, value in given.items()}))
    try:
        yield
    finally:
        _limits.reset(token)


def add_limit_argument(parser: argparse.ArgumentParser) -> None:
    """Adds `--limit NAME=VALUE`, any number of times; `limits(**dict(options.limit))` applies them."""
    named = "a limit of engine.limits: instructions, levels, bytes or seconds"
    parser.add_argument("--limit", type=_parsed, action="append", default=[], metavar="NAME=VALUE", help=named)


def _parsed(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    try:
        return name, _checked(name, float(value) if name == "seconds" else int(value))
    except ValueError as error:  # ConfigurationError is one
        raise argparse.ArgumentTypeError(
            f"expected NAME=VALUE with a number above 0 and one of the names {', '.join(NAMES)}, received {text!r:.80}"
        ) from error


def _checked(name: str, value: Any) -> Any:
    kinds = int | float if name == "seconds" else int
    if name not in NAMES or isinstance(value, bool) or not isinstance(value, kinds) or not 0 < value < math.inf:
        raise ConfigurationError(
            f"Expected limits above 0 of {', '.join(NAMES)}, integers but for seconds. Received: {name}={value!r:.80}."
        )
    return value


def current_limits() -> Limits:
    """The limits of programs that are read here and now."""
    return _limits.get()


def above(name: str, expected: str, received: str) -> ResourceLimit:
    """The error of a program above the limit `name`."""
    return ResourceLimit(
        f"Expected at most {expected}. Received: {received}. If you trust the origin of the file, raise the limit: "
        f"load it within engine.limits({name}=...), or serve or compile it with --limit {name}=..."
    )


def check_bytes(count: int, what: str) -> None:
    """Raises ResourceLimit for more bytes than a program that is being compiled from a file may take."""
    most = _limits.get().most_bytes
    if _deadline.get() is not None and count > most:
        raise above("bytes", f"{most} bytes of {what}", f"{count}")


@dataclass(frozen=True, slots=True)
class Deadline:
    """The time, in seconds of the monotonic clock, at which a program of `origin` must have been compiled."""

    origin: str
    seconds: float
    end: float

    def error(self) -> ResourceLimit:
        """The error of a compilation that has not ended."""
        return above("seconds", f"{self.seconds:g} seconds to compile the program in {self.origin}", "one not done yet")


@contextmanager
def within_seconds(origin: str) -> Iterator[None]:
    """Ends the reading and compilation of a program from a file in the seconds of the limits.

    A context within another one has the deadline of the outer one.
    """
    seconds = _limits.get().seconds
    deadline = _deadline.get() or Deadline(origin, seconds, time.monotonic() + seconds)
    token = _deadline.set(deadline)
    try:
        yield
    except _TimeIsUp:  # between `interruptible` and its block, where only this context sees it
        _is_interruptible.set(False)
        raise deadline.error() from None
    finally:
        _deadline.reset(token)


def check_time() -> None:
    """Raises ResourceLimit where the time of a compilation is up."""
    deadline = _deadline.get()
    if deadline is not None and time.monotonic() > deadline.end:
        raise deadline.error()


class _TimeIsUp(BaseException):
    """Ends Python code at any instruction; no handler of errors within stops it."""


@contextmanager
def interruptible() -> Iterator[None]:
    """Raises ResourceLimit at any instruction of this thread when the time of a compilation ends.

    Use it for passes and lowering, which change nothing that outlives them: otherwise each of their loops would have to
    look at the clock. Does nothing outside of `within_seconds`, nor within another one.
    """
    deadline = _deadline.get()
    if deadline is None or _is_interruptible.get():
        yield
        return
    check_time()
    alarm = _Alarm(deadline.end - time.monotonic())
    token = _is_interruptible.set(True)
    try:
        try:
            alarm.start()
            yield
        finally:
            try:
                alarm.stop()
            except _TimeIsUp:
                alarm.stop()  # it is raised once
                raise
    except _TimeIsUp:
        raise deadline.error() from None
    finally:
        _is_interruptible.reset(token)
    check_time()


class _Alarm:
    """Raises _TimeIsUp in the thread that made it, unless it is stopped before.

    The alarm has only locks of C: a lock of Python stays locked if the error comes between its acquisition and the
    return.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = min(max(seconds, 0.0), _thread.TIMEOUT_MAX)
        self._target = ctypes.c_ulong(_thread.get_ident())
        self._guard, self._running = _thread.allocate_lock(), _thread.allocate_lock()
        self._running.acquire()
        self._is_over = False

    def start(self) -> None:
        """Lets the time run."""
        _thread.start_new_thread(self._wait, ())

    def stop(self) -> None:
        """Stops the alarm: an error that is due is raised by this call, none later.

        PyThreadState_SetAsyncExc(thread, None) would take it back but leave CPython's flag of a due error set for good:
        Python 3.11 then hangs at the next call once a profiler or a debugger is on; 3.12 and 3.13 run slower.
        """
        with self._guard:
            self._is_over = True
            if self._running.locked():
                self._running.release()
        for _ in range(2):  # an error that is due is raised at the latest where a loop goes back
            pass

    def _wait(self) -> None:
        if self._running.acquire(timeout=self._seconds):
            return
        with self._guard:
            if not self._is_over:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(self._target, ctypes.py_object(_TimeIsUp))
