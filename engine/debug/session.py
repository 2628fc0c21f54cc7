"""Entry point for programs that other code compiles: within `debugging()` they become debug executables."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from engine.debug.executable import TILES, DebugExecutable
from engine.debug.record import DebugRecord
from engine.program.program import Program
from engine.runtime.executable import Progress
from engine.runtime.make_executable import made_by


class Session:
    """The programs compiled within `debugging()`: `records` has the record of each, oldest first."""

    def __init__(self, tiles: int) -> None:
        self.tiles = tiles
        self.records: list[DebugRecord] = []

    def make(self, program: Program, progress: Progress | None = None) -> DebugExecutable:
        """A debug executable, whose record is kept."""
        made = DebugExecutable(program, progress, tiles=self.tiles)
        self.records.append(made.record)
        return made

    def table(self) -> str:
        """The tables of all programs that have run so far."""
        return "\n\n".join(record.table() for record in self.records if record.steps)


@contextlib.contextmanager
def debugging(tiles: int = TILES) -> Iterator[Session]:
    """A context in which programs are compiled for the debug executor, which is slow and has the same results.

    These programs run on the debug executor also after the context. They raise DebugError for faults of the engine.
    Programs that were compiled before are not affected. Units are distributed over `tiles` tiles. Compiling a program
    for less than one tile raises ConfigurationError.
    """
    session = Session(tiles)
    with made_by(session.make):
        yield session
