"""Writes of files and folders that are whole or absent, whenever a process or a machine ends, or a disk is full.

Content is written beside its place, brought to the disk, and renamed once: until then the former content stays.

Files that belong together are replaced as one generation: parts of two are never beside each other. Before the first
new part takes its place, the former ones get names of their own, which end in FORMER; after the last they are deleted.
If a process is killed in between, some parts are absent, both generations are on the disk, and the next writer puts the
former one back before it begins.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import functools
import hashlib
import os
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

PART = ".part"
"""Suffix of files that are being written; their names begin with a dot and the final name."""
FORMER = ".former"
"""Suffix of former content while new content takes its place; the names begin with a dot and the final name."""
STATE = "checkpoint"
"""TensorFlow's file that names the checkpoints of a folder. It belongs to all of them, so it is replaced by itself."""
ABANDONED_SECONDS = 3600.0
"""Seconds without a write after which the writer of a file counts as killed."""
EXCHANGE = 2
"""Linux' flag RENAME_EXCHANGE."""
AT_CWD = -100
LOCK_SECONDS = 10.0
"""Seconds for which a writer waits for another one. Other users that may read a folder can keep it locked."""
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
    """Writes bytes or texts as `write_whole` does, as one generation: no file takes its place before all are written.

    Pipes and devices are written in place.
    """
    written: list[tuple[Path, Path]] = []
    places = {_place(path): data.encode() if isinstance(data, str) else data for path, data in contents.items()}
    try:
        for place, content in places.items():
            if place.exists() and not place.is_file():
                place.write_bytes(content)
                continue
            make_folder(place.parent)
            part = _part(place)
            written.append((part, place))
            _write(part, content, 0o666 if mode is None else mode)
            if sync:
                _sync(part)
        _replace(written, takes_modes=mode is None)
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

    At the end all that is in the new folder replaces what has its name beside `path`, files as one generation. After an
    error nothing has changed.
    """
    place = _place(Path(path))
    make_folder(place.parent)
    stage = _part(place)
    fault_point("create", stage)
    stage.mkdir()
    try:
        yield stage / place.name
        written = sorted(stage.iterdir(), key=lambda each: _order(each, place))
        _put_all([(each, place.parent / each.name) for each in written])
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _order(written: Path, place: Path) -> tuple[bool, bool, bool, str]:
    """A sort key that puts files that name others last: an index, the requested path, the state of checkpoints."""
    return written.name == "checkpoint", written.name == place.name, written.suffix in (".index", ".json"), written.name


def put(written: Path, path: Path) -> None:
    """Renames a file or a folder, once it is on the disk, to `path` on the same file system, whose content it replaces.

    A folder replaces a folder in one exchange, if the system has such; then the content of the old one is deleted.
    """
    _put_all([(written, path)])


def _put_all(pairs: list[tuple[Path, Path]]) -> None:
    """Does as `put`, also for files that belong together."""
    for written, _ in pairs:
        _sync_all(written)
    written, path = pairs[0]
    if len(pairs) == 1 and path.is_dir() and not path.is_symlink():
        _exchange(written, path)
    else:
        _replace(pairs)
    _sync(path.parent)


def check_space(folder: Path, size: int) -> None:
    """Raises OSError where a folder has no space for `size` bytes: for writers that do not survive a full disk."""
    part = _part(folder / "room")
    fault_point("create", part)
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
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
    prefix = f".{_shortened(place.name)}."
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
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(handle, "wb") as file:
        fault_point("write", part)
        file.write(data)


def _take_mode(written: Path, path: Path) -> None:
    """Gives a file the permissions of the one that it replaces."""
    if written.is_file() and path.is_file():
        shutil.copymode(path, written)


def _sync_all(written: Path) -> None:
    """Brings a file, or a folder with its content, to the disk."""
    for each in [*written.rglob("*"), written] if written.is_dir() else [written]:
        _sync(each)


def _sync(path: Path) -> None:
    if stat.S_ISLNK(path.lstat().st_mode):
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


def _replace(written: list[tuple[Path, Path]], *, takes_modes: bool = True) -> None:
    """Renames the parts of a generation to their places, with the permissions of the files there if `takes_modes`.

    Several former parts are out of the way before.
    """
    places = [place for _, place in written if place.name != STATE] if len(written) > 1 else []
    with contextlib.ExitStack() as locks:
        if places:
            locks.enter_context(_locked(places[0].parent))
        _restore(places)
        for part, place in written if takes_modes else ():  # another writer may have had the place out of the way
            _take_mode(part, place)
        _rename_all(written, places)


def _rename_all(written: list[tuple[Path, Path]], places: list[Path]) -> None:
    formers, done = [place for place in places if place.exists()], []
    try:
        for place in formers:
            _rename(place, _former(place))
        for part, place in written:
            _rename(part, place)
            done.append(place)
    except BaseException:
        with contextlib.suppress(OSError):  # of a disk that is read-only by now
            for place in done:
                if place in places:
                    place.unlink()
            _restore(places)
        raise
    for place in formers:
        fault_point("remove", _former(place))
        _former(place).unlink()


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keeps other writers of this module from replacing several files in a folder."""
    handle, end = os.open(folder, os.O_RDONLY), time.monotonic() + LOCK_SECONDS
    try:
        while time.monotonic() < end:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.01)
            except OSError:  # a file system without locks
                break
        yield
    finally:
        os.close(handle)


def _restore(places: list[Path]) -> None:
    """Puts back former parts whose writer ended in between, or deletes them if all new ones have their places."""
    is_whole = all(place.exists() for place in places)
    for place in places:
        former = _former(place)
        if former.is_file():
            former.unlink() if is_whole else os.replace(former, place)


def _former(place: Path) -> Path:
    return place.with_name(f".{_shortened(place.name)}{FORMER}")


def _shortened(name: str) -> str:
    """A name with space for suffixes within the 255 bytes of a file system: a hash keeps long names different."""
    digest = hashlib.sha256(os.fsencode(name)).hexdigest()
    return name if len(os.fsencode(name)) <= 200 else f"{name[:30]}.{digest}"


def _exchange(written: Path, path: Path) -> None:
    """Puts one folder in the place of another, which is then deleted."""
    fault_point("rename", path)
    function = _renameat2()
    if function is not None and function(AT_CWD, os.fsencode(written), AT_CWD, os.fsencode(path), EXCHANGE) == 0:
        former = written
    else:
        former = _former(path)
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
    return getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
