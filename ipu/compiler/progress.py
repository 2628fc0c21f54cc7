"""Says what takes long: codelets that this machine compiles for the first time."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from engine.codelets.build import building

QUIET_SECONDS = 1.0
"""Nothing is said about what takes less."""
REDRAW_SECONDS = 0.1


class CompileProgress:
    """A line on stderr that is redrawn on a terminal, and printed once elsewhere."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._drawn = 0.0
        self._width = 0
        self._terminal = sys.stderr.isatty()

    def codelet(self, name: str) -> None:
        """A library codelet is about to be compiled (seconds, once per machine)."""
        self._show(f"codelet {name}", at_once=True)

    def generated(self, what: str, done: int, total: int) -> None:
        """Number `done` of `total` codelets of the program is about to be made (milliseconds each)."""
        self._show(f"{what} {done + 1} of {total}", at_once=False)

    def _show(self, text: str, at_once: bool) -> None:
        now = time.monotonic()
        if not at_once and (now - self._start < QUIET_SECONDS or now - self._drawn < REDRAW_SECONDS):
            return
        if not self._terminal and self._drawn:
            return
        self._drawn = now
        line = f"software IPU: compiling for this machine, kept for the next time: {text}"
        end = "" if self._terminal else "\n"
        start = "\r" if self._terminal else ""
        sys.stderr.write(f"{start}{line.ljust(self._width)}{end}")
        sys.stderr.flush()
        self._width = len(line)

    def finish(self) -> None:
        """Says how long it took, if anything was said before."""
        if not self._drawn:
            return
        line = f"software IPU: compiled in {time.monotonic() - self._start:.1f} s"
        start = "\r" if self._terminal else ""
        sys.stderr.write(f"{start}{line.ljust(self._width)}\n")
        sys.stderr.flush()


@contextmanager
def compile_progress() -> Iterator[CompileProgress]:
    """Shows progress while the context is open; its `generated` goes to `compile_module`."""
    progress = CompileProgress()
    with building(progress.codelet):
        try:
            yield progress
        finally:
            progress.finish()
