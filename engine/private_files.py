"""Files and folders that only the user (or root, who may do anything) can have written.

Code loaded from a cache runs as the user, so files of other users are not read, and nothing that may block is opened.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def fault(status: os.stat_result) -> str | None:
    """The fault of a file or folder of this status: another owner, or others may write to it; None if there is none."""
    if not hasattr(os, "geteuid"):  # Windows protects a user's cache by ACLs, which no mode shows
        return None
    if status.st_uid not in (os.geteuid(), 0):
        return f"it belongs to the user with number {status.st_uid}"
    if status.st_mode & WRITABLE_BY_OTHERS:
        return "others may write to it: chmod go-w"
    return None


def fault_of_folder(folder: Path) -> str | None:
    """The same for a folder, or that it is not one. Raises OSError if it does not exist."""
    status = folder.stat()
    return fault(status) if stat.S_ISDIR(status.st_mode) else "it is not a folder"


def read_private(path: Path) -> bytes:
    """The content of a regular file that only the user can have written.

    Raises FileNotFoundError if it does not exist, PermissionError for a file that others may have written, or a pipe, a
    device or the like; never waits for another process.
    """
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        status = os.fstat(handle)
        wrong = fault(status) if stat.S_ISREG(status.st_mode) else "it is not a regular file"
        if wrong is not None:
            raise PermissionError(f"{path}: {wrong}")
        file = os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise
    with file:
        return file.read()


def make_private(folder: Path) -> None:
    """Creates a folder that only the user may use, whatever the umask; an existing one stays as it is."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


def touch(path: Path) -> None:
    """Sets a file's time, or creates it empty; never opens an existing file, as it might be a pipe."""
    try:
        os.utime(path)
    except FileNotFoundError:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
