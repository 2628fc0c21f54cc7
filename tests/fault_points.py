"""Kills and errors at each change of a file system: what a process leaves when it ends there, or the disk is full."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from engine import whole_files

ERRORS = {"full": errno.ENOSPC, "read-only": errno.EROFS}


@contextmanager
def fault_points(act: Callable[[int], None]) -> Iterator[list[tuple[str, Path]]]:
    """Calls `act` before each change, with its number, while open; yields the list of changes so far."""
    passed: list[tuple[str, Path]] = []

    def point(what: str, path: Path) -> None:
        passed.append((what, path))
        act(len(passed) - 1)

    former, whole_files.fault_point = whole_files.fault_point, point
    try:
        yield passed
    finally:
        whole_files.fault_point = former


def left_by_kills(write: Callable[[], object], folder: Path, into: Path) -> list[Path]:
    """Copies of `folder` as a kill before each change leaves it, and as it is at the end."""
    kept: list[Path] = []

    def copy(number: int) -> None:
        kept.append(Path(shutil.copytree(folder, into / str(number), symlinks=True)))

    with fault_points(copy):
        write()
    copy(len(kept))
    return kept


def fails_at(write: Callable[[], object], number: int, code: int) -> OSError | None:
    """The error of a write when the change of that number and all later ones fail; None if it makes fewer changes."""

    def fail(passed: int) -> None:
        if passed >= number:
            raise OSError(code, os.strerror(code))

    try:
        with fault_points(fail):
            write()
    except OSError as error:
        return error
    return None
