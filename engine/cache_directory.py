"""Compiled code kept on disk between processes: files are written atomically, checked when read, deleted when unused.

Folder names are hashes of what the code depends on, so a change of sources, compiler or processor selects another one.
A cache that cannot be read or written is no error: each process then compiles in memory. The same holds if other users
may write to it, as what they write would run as this user.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import platform
import re
import shutil
import time
from functools import cache
from pathlib import Path

from engine.errors import InvalidFile
from engine.private_files import fault_of_folder, make_private, read_private, touch
from engine.whole_files import write_whole

DAY = 24 * 3600.0
UNUSED = 30 * DAY
"""Seconds after which a folder or a file that no process of this machine has used is deleted."""
UNUSED_ELSEWHERE = 180 * DAY
"""Seconds after which a file of machines that share the folder is deleted: their clocks and use are unknown here."""
MOST_BYTES = 4 << 30
"""Bytes of all folders of compiled code; above, the files that have been unused for longest are deleted."""
STAMP = "used-by-"
STAMP_PERIOD = DAY
FOLDER = re.compile(r"(codelets|objects|programs|ahead)(-[0-9a-f]{16})?")
"""Names of folders of compiled code. Earlier releases made folders called `ahead`, which are deleted likewise."""
DIGEST_BYTES = 32

logger = logging.getLogger("ipu")
_stamped: dict[Path, float] = {}
_private: set[Path] = set()


def user_cache() -> Path:
    """$XDG_CACHE_HOME or ~/.cache; not created here."""
    if os.environ.get("XDG_CACHE_HOME"):
        return Path(os.environ["XDG_CACHE_HOME"])
    return Path.home() / ".cache"


def cache_directory(kind: str) -> Path:
    """The folder software-ipu/<kind> in the user's cache; not created here."""
    return user_cache() / "software-ipu" / kind


def load(path: Path) -> bytes | None:
    """The content that `store` wrote under this path; None if the file is missing, truncated or altered.

    Also None, with one warning, for a file or a folder that users other than this one may have written.
    """
    try:
        if not _is_used(path.parent):
            return None
        data = read_private(path)
    except (PermissionError, InvalidFile) as error:
        _notice("file", "A file of compiled code is not used (%s). It is compiled again.", str(error).rstrip("."))
        return None
    except OSError:
        return None
    content = data[DIGEST_BYTES:]
    if _digest(path, content) != data[:DIGEST_BYTES]:
        return None
    _stamp(path.parent)
    _note_use(path)
    return content


def _digest(path: Path, content: bytes) -> bytes:
    """Hash of a file's content and name, so that a renamed file is rejected."""
    return hashlib.sha256(path.name.encode() + b"\0" + content).digest()


def _is_used(folder: Path) -> bool:
    """Whether a folder of compiled code and its parent are the user's alone; warns once if they are not.

    Raises OSError for a folder that does not exist.
    """
    if folder not in _private:
        for each in (folder.parent, folder):
            wrong = fault_of_folder(each)
            if wrong is not None:
                _notice_folder(str(each), wrong)
                return False
        _private.add(folder)
    return True


def store(path: Path, content: bytes) -> None:
    """Writes a file atomically for other processes. Logs one warning if that is not possible."""
    try:
        if not path.parent.is_dir():
            make_private(path.parent.parent)
            if fault_of_folder(path.parent.parent) is None:
                make_private(path.parent)
                remove_unused(path.parent.parent)
        if _is_used(path.parent):
            _stamp(path.parent)
            if not path.is_file():
                path.unlink(missing_ok=True)  # a pipe would be written in place, and wait for a reader
            # A torn file is noticed by its digest, so programs do not wait for the disk.
            write_whole(path, _digest(path, content) + content, mode=0o600, sync=False)
    except OSError as error:
        _notice_folder(str(path.parent.parent), error.strerror or str(error))


_noticed: set[str] = set()


def _notice(kind: str, message: str, *arguments: object) -> None:
    """Logs a warning, once per kind."""
    if kind not in _noticed:
        _noticed.add(kind)
        logger.warning(message, *arguments)


def _notice_folder(folder: str, reason: str) -> None:
    _notice(
        "folder",
        "Compiled code cannot be kept in %s (%s), so each process compiles it again. Expected a folder with space that "
        "only you can write; set XDG_CACHE_HOME to choose another one.",
        folder,
        reason,
    )


@cache
def _stamp_name() -> str:
    return STAMP + re.sub(r"[^\w.-]", "_", platform.node() or "unknown")


def _stamp(folder: Path) -> None:
    """Records in a stamp file's time that this machine uses a folder: when it is opened, and daily.

    The first process to do so in a day also deletes what is unused.
    """
    now = time.time()
    if now - _stamped.get(folder, 0.0) < STAMP_PERIOD:
        return
    _stamped[folder] = now
    stamp = folder / _stamp_name()
    with contextlib.suppress(OSError):  # a read-only folder is not ours to clean up
        stale = stamp.exists() and now - stamp.stat().st_mtime >= STAMP_PERIOD
        touch(stamp)
        if stale:
            remove_unused(folder.parent)


def _note_use(path: Path) -> None:
    """Records in a file's time that it is used, at most daily."""
    with contextlib.suppress(OSError):
        if time.time() - path.stat().st_mtime >= STAMP_PERIOD:
            os.utime(path)


def remove_unused(root: Path) -> None:
    """Deletes compiled code in `root` that has long been unused: folders, and files of folders in use.

    Above MOST_BYTES, the files that have been unused for longest are deleted, too. A process that has loaded a file
    does not need it any longer, and a process that finds none compiles.
    """
    with contextlib.suppress(OSError):
        folders = [each for each in root.iterdir() if FOLDER.fullmatch(each.name) and not each.is_symlink()]
        files: list[tuple[float, int, Path]] = []
        for folder in folders:
            with contextlib.suppress(OSError):
                if folder not in _stamped and _is_unused(folder):
                    shutil.rmtree(folder, ignore_errors=True)
                else:
                    files += _used_files(folder)
        excess = sum(size for _, size, _ in files) - MOST_BYTES
        for _, size, path in sorted(files):
            if excess <= 0:
                break
            path.unlink(missing_ok=True)
            excess -= size


def _used_files(folder: Path) -> list[tuple[float, int, Path]]:
    """The time of use, the size and the path of each file of a folder, after those long unused have been deleted."""
    own = _stamp_name()
    is_shared = any(stamp.name != own for stamp in folder.glob(STAMP + "*"))
    oldest = time.time() - (UNUSED_ELSEWHERE if is_shared else UNUSED)
    found = []
    for entry in os.scandir(folder):
        if entry.is_file(follow_symlinks=False) and not entry.name.startswith(STAMP):
            status = entry.stat(follow_symlinks=False)
            if status.st_mtime < oldest:
                with contextlib.suppress(FileNotFoundError):  # another process deletes, too
                    os.unlink(entry.path)
            else:
                found.append((status.st_mtime, status.st_size, Path(entry.path)))
    return found


def _is_unused(folder: Path) -> bool:
    now, own = time.time(), _stamp_name()
    if now - folder.stat().st_mtime < UNUSED:
        return False
    return all(
        now - stamp.stat().st_mtime >= (UNUSED if stamp.name == own else UNUSED_ELSEWHERE)
        for stamp in folder.glob(STAMP + "*")
    )
