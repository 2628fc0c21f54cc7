"""Progress of slow compilation: machine code that this processor needs for the first time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from engine.codelets.language.build import building
from engine.notices import is_on_terminal, start_line, write_notice

QUIET_SECONDS = 1.0
"""Compilation that takes less is not reported."""
REDRAW_SECONDS = 0.1
COMPILING = "IPU: compiling for this processor, kept for later runs"
COMPILED = "IPU: compiled"
SLOW_SECONDS = 4.0
"""A step that takes longer to trace and check is announced."""
TRACING = "IPU: tracing a step, which takes long for large models"


class CompileProgress:
    """A line on stderr that is redrawn on a terminal, and printed once elsewhere."""

    def __init__(self) -> None:
        self._start: float | None = None
        self._drawn = 0.0
        self._width = 0
        self._codelets = 0
        self._terminal = is_on_terminal()

    def codelet(self, name: str) -> None:
        """Shows that a library codelet is about to be compiled (seconds, once per machine)."""
        self._codelets += 1
        self._show(f": library codelet {self._codelets}", at_once=True)

    def generated(self, what: str, done: int, total: int) -> None:
        """Shows that codelet number `done` of `total` of the program is about to be generated (milliseconds each)."""
        self._show(f": {done + 1} of {total}", at_once=False)

    def _show(self, text: str, at_once: bool) -> None:
        now = time.monotonic()
        self._start = now if self._start is None else self._start
        if not at_once and (now - self._start < QUIET_SECONDS or now - self._drawn < REDRAW_SECONDS):
            return
        if not self._terminal and self._drawn:
            return
        if not self._drawn:
            start_line()
        self._drawn = now
        if self._terminal:
            self._redraw(COMPILING + text)
        else:
            write_notice(COMPILING + "\n")

    def finish(self) -> None:
        """Prints the total time, if anything was printed before."""
        if self._start is None or not self._drawn:
            return
        line = f"{COMPILED} in {time.monotonic() - self._start:.1f} s"
        if self._terminal:
            self._redraw(line)
            write_notice("\n")
        else:
            write_notice(f"{line}\n")

    def _redraw(self, line: str) -> None:
        write_notice(f"\r{line.ljust(self._width)}")
        self._width = len(line)


@contextmanager
def compile_progress() -> Iterator[CompileProgress]:
    """Shows progress while the context is open; its `generated` goes to `compile_module`."""
    progress = CompileProgress()
    with building(progress.codelet):
        try:
            yield progress
        finally:
            progress.finish()


@contextmanager
def slow_notice() -> Iterator[None]:
    """Prints a line on stderr once the context has been open for SLOW_SECONDS."""
    timer = threading.Timer(SLOW_SECONDS, _announce)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _announce() -> None:
    start_line()
    write_notice(f"{TRACING}\n")
