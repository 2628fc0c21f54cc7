"""Construction of executables: fast ones, unless a caller has set another constructor."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from engine.program.program import Program
from engine.runtime.checked import CheckedExecutable
from engine.runtime.executable import Executable, Progress

Maker = Callable[[Program, Progress | None], Executable]
_makers: list[Maker] = []


def make_executable(program: Program, progress: Progress | None = None) -> Executable:
    """The executable of a program. `progress(what, done, total)` is called as codelets are compiled."""
    usual = CheckedExecutable if program.exception_names else Executable
    return (_makers[-1] if _makers else usual)(program, progress)


@contextlib.contextmanager
def made_by(maker: Maker) -> Iterator[None]:
    """Lets `maker` build executables on any thread, while the context is open."""
    _makers.append(maker)
    try:
        yield
    finally:
        _makers.remove(maker)
