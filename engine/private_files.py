"""Bounded reads of files: only of regular files of a limited size, and of files that only the user can have written.

A pipe or a device could keep a reader waiting for ever or fill its memory. Code loaded from a cache runs as the user,
so files that others may have written (root excepted, who may do anything) are not read.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable
from pathlib import Path

from engine.errors import InvalidFile, ResourceLimit

LEAST_READ = 1 << 16
SHARE_OF_MEMORY = 4
"""The largest file is this part of the machine's memory: what is made of a file needs memory beside it."""
MOST_WITHOUT_SIZE = 1 << 26
"""Most bytes of a file that has no size; some of /proc have as many bytes as there are addresses."""
WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def fault(status: os.stat_result) -> str | None:
    """The fault of a file or folder of this status: another owner, or others may write to it; None if there is none."""
    if status.st_uid not in (os.geteuid(), 0):
        return f"it belongs to the user with number {status.st_uid}"
    if status.st_mode & WRITABLE_BY_OTHERS:
        return "others may write to it: chmod go-w"
    return None


def fault_of_folder(folder: Path) -> str | None:
    """The fault of a folder's ownership or permissions, or that it is no folder; None if fine. Raises OSError if it
    does not exist.
    """
    status = folder.stat()
    return fault(status) if stat.S_ISDIR(status.st_mode) else "it is not a folder"


def machine_memory() -> int:
    """The machine's memory in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def most_of_a_file() -> int:
    """The usual limit of a file's bytes."""
    return machine_memory() // SHARE_OF_MEMORY


def read_regular(path: str | Path, most_bytes: int | None = None) -> bytes:
    """The content of a regular file of at most `most_bytes`, by default a quarter of the machine's memory.

    Raises OSError for a file that cannot be opened; InvalidFile for a pipe, a device, a folder or a larger file. Never
    waits for another process.
    """
    return _read(path, most_of_a_file() if most_bytes is None else most_bytes, lambda status: None)


def read_private(path: Path) -> bytes:
    """The content of a regular file that only the user can have written.

    Raises FileNotFoundError if it does not exist, PermissionError for a file that others may have written, InvalidFile
    as `read_regular` does.
    """

    def check(status: os.stat_result) -> None:
        wrong = fault(status)
        if wrong is not None:
            raise PermissionError(f"{path}: {wrong}")

    return _read(path, most_of_a_file(), check)


def _read(path: str | Path, most_bytes: int, check: Callable[[os.stat_result], None]) -> bytes:
    if "\0" in os.fspath(path):
        raise InvalidFile(f"Expected the path of a file. Received: {str(path)!r:.80}, which has a zero byte.")
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        status = os.fstat(handle)
        _check_kind(path, status)
        check(status)
        file = os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise
    parts: list[bytes] = []
    most_bytes = most_bytes if status.st_size else min(most_bytes, MOST_WITHOUT_SIZE)
    rest = most_bytes
    with file:
        # Files of /proc have no size.
        while status.st_size <= most_bytes and (part := file.read(max(status.st_size, LEAST_READ))):
            parts.append(part)
            rest -= len(part)
            if rest < 0:
                break
    if status.st_size > most_bytes or rest < 0:
        raise ResourceLimit(f"Expected at most {most_bytes} bytes in {path}. Received: a larger file.")
    return b"".join(parts)


def check_regular(*paths: str | Path) -> None:
    """Raises InvalidFile for a path of a pipe, a device or a folder, before another library waits for it or reads it
    without end; OSError for one that cannot be looked at. Absent files are fine.
    """
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            _check_kind(path, os.stat(path))


def _check_kind(path: str | Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise InvalidFile(f"Expected {path} to be a regular file. Received: {_kind(status)}.")


def _kind(status: os.stat_result) -> str:
    kinds = {stat.S_IFIFO: "a pipe", stat.S_IFDIR: "a folder", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(status.st_mode), "a device")


def make_private(folder: Path) -> None:
    """Creates a folder that only the user may use, under any umask; an existing one stays as it is."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


def touch(path: Path) -> None:
    """Sets a file's time, or creates it empty; never opens an existing file, as it might be a pipe."""
    try:
        os.utime(path)
    except FileNotFoundError:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
