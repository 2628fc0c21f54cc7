"""Writes of files and folders that are whole or absent, whenever a process or a machine ends, or a disk is full.

Content is written beside its place, brought to the disk, and renamed once: until then the former content stays.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
import secrets
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

PART = ".part"
"""Suffix of files that are being written; their names begin with a dot and the final name."""
FORMER = ".former"
ABANDONED_SECONDS = 3600.0
"""Seconds without a write after which the writer of a file counts as killed."""
EXCHANGE = 2
"""Linux' flag RENAME_EXCHANGE."""
AT_CWD = -100
NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS})


def _nothing(what: str, path: Path) -> None:
    pass


fault_point: Callable[[str, Path], None] = _nothing
"""Function called before each change to a file system, with its kind and path; tests raise errors or end the process in
it.
"""


def write_whole(path: str | Path, data: bytes | str, *, mode: int | None = None, sync: bool = True) -> None:
    """Writes a file, text as UTF-8; raises OSError if it cannot, and the former content stays.

    `mode` is the file's, by default what the umask leaves of 0o666. Without `sync` a crash of the machine may leave an
    incomplete file, which its reader must notice.
    """
    write_all({Path(path): data}, mode=mode, sync=sync)


def write_all(contents: Mapping[Path, Any], *, mode: int | None = None, sync: bool = True) -> None:
    """Writes bytes or texts as `write_whole` does; no file takes its place before all are written.

    Pipes and devices are written in place.
    """
    written: list[tuple[Path, Path]] = []
    try:
        for path, data in contents.items():
            place, content = _place(path), data.encode() if isinstance(data, str) else data
            if place.exists() and not place.is_file():
                place.write_bytes(content)
                continue
            make_folder(place.parent)
            part = _part(place)
            written.append((part, place))
            _write(part, content, 0o666 if mode is None else mode)
            if mode is None:
                _take_mode(part, place)
            if sync:
                _sync(part)
        for part, place in written:
            _rename(part, place)
        if sync:
            for folder in dict.fromkeys(place.parent for _, place in written):
                _sync(folder)
    finally:
        for part, _ in written:
            with contextlib.suppress(OSError):
                part.unlink()


@contextlib.contextmanager
def staged(path: str | Path) -> Iterator[Path]:
    """Yields a path of the same name in a new folder beside it, for a file, a folder, or files of that prefix.

    At the end all that is in the new folder replaces what has its name beside `path`; `path` is replaced last. After an
    error nothing has changed.
    """
    place = _place(Path(path))
    make_folder(place.parent)
    stage = _part(place)
    fault_point("create", stage)
    stage.mkdir()
    try:
        yield stage / place.name
        for each in sorted(stage.iterdir(), key=lambda each: _order(each, place)):
            put(each, place.parent / each.name)
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _order(written: Path, place: Path) -> tuple[bool, bool, bool, str]:
    """A sort key that puts files that name others last: an index, the requested path, the state of checkpoints."""
    return written.name == "checkpoint", written.name == place.name, written.suffix in (".index", ".json"), written.name


def put(written: Path, path: Path) -> None:
    """Renames a file or a folder, once it is on the disk, to `path` on the same file system, whose content it replaces.

    A folder replaces a folder in one exchange, if the system has such; then the content of the old one is deleted.
    """
    for each in [*written.rglob("*"), written] if written.is_dir() else [written]:
        _sync(each)
    if path.is_dir() and not path.is_symlink():
        _exchange(written, path)
    else:
        _take_mode(written, path)
        _rename(written, path)
    _sync(path.parent)


def check_space(folder: Path, size: int) -> None:
    """Raises OSError where a folder has no space for `size` bytes: for writers that do not survive a full disk."""
    part = _part(folder / "room")
    fault_point("create", part)
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(handle, 0, size)
    except OSError as error:
        if error.errno in NO_SPACE:  # others say that the file system reserves nothing
            raise OSError(error.errno, os.strerror(error.errno), str(folder)) from error
    finally:
        os.close(handle)
        part.unlink()


def remove(path: Path) -> None:
    """Deletes a folder with its content; other processes see it vanish at once. A missing folder is no error."""
    if not path.is_dir():
        return
    away = _part(path)
    try:
        _rename(path, away)
    except OSError:  # the root of a file system, or a folder in one that cannot be written
        away = path
    fault_point("remove", away)
    shutil.rmtree(away)


def make_folder(path: Path) -> None:
    """Creates a folder and its parents, unless they exist."""
    if not path.is_dir():
        fault_point("create", path)
        path.mkdir(parents=True, exist_ok=True)


def _place(path: Path) -> Path:
    """The path to replace: the target of a symbolic link, so that the link stays."""
    return path.resolve() if path.is_symlink() else path.absolute()


def _part(place: Path) -> Path:
    """A new name beside `place`. What a killed writer has left there for long is deleted."""
    prefix = f".{place.name[:200]}."  # a name has at most 255 bytes
    with contextlib.suppress(OSError):
        for each in place.parent.iterdir():
            if each.name.startswith(prefix) and each.suffix == PART and _is_abandoned(each):
                shutil.rmtree(each) if each.is_dir() else each.unlink()
    return place.with_name(f"{prefix}{secrets.token_hex(4)}{PART}")


def _is_abandoned(part: Path) -> bool:
    latest = max(each.lstat().st_mtime for each in (part, *part.rglob("*")))
    return time.time() - latest > ABANDONED_SECONDS


def _write(part: Path, data: bytes, mode: int) -> None:
    fault_point("create", part)
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), mode)
    with os.fdopen(handle, "wb") as file:
        fault_point("write", part)
        file.write(data)


def _take_mode(written: Path, path: Path) -> None:
    """Gives a file the permissions of the one that it replaces."""
    if written.is_file() and path.is_file():
        shutil.copymode(path, written)


def _sync(path: Path) -> None:
    if sys.platform == "win32" or stat.S_ISLNK(path.lstat().st_mode):  # Windows opens no folders
        return
    fault_point("sync", path)
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _rename(source: Path, target: Path) -> None:
    fault_point("rename", target)
    os.replace(source, target)


def _exchange(written: Path, path: Path) -> None:
    """Puts one folder in the place of another, which is then deleted."""
    fault_point("rename", path)
    function = _renameat2()
    if function is not None and function(AT_CWD, os.fsencode(written), AT_CWD, os.fsencode(path), EXCHANGE) == 0:
        former = written
    else:
        former = path.with_name(f".{path.name}{FORMER}")
        if former.exists():
            shutil.rmtree(former)
        os.rename(path, former)
        try:
            os.rename(written, path)
        except OSError:
            os.rename(former, path)
            raise
    fault_point("remove", former)
    shutil.rmtree(former)


@functools.cache
def _renameat2() -> Callable[[int, bytes, int, bytes, int], int] | None:
    if sys.platform != "linux":
        return None
    return getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
