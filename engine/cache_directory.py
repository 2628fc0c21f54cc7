"""Compiled code kept on disk between processes: whole files or none, checked when read, forgotten when unused.

Folders have a name made of what the code depends on, so a change of sources, compiler or processor finds another one.
A cache that cannot be read or written is no error: the code is then made in memory, by each process anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import platform
import re
import shutil
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

DAY = 24 * 3600.0
UNUSED = 30 * DAY
"""A folder that no process of this machine has used for so long is deleted."""
UNUSED_ELSEWHERE = 180 * DAY
"""The same for machines that share the folder: their clocks and habits are not known here."""
STAMP = "used-by-"
STAMP_PERIOD = DAY
FOLDER = re.compile(r"(codelets|objects|programs)(-[0-9a-f]{16})?")
DIGEST_BYTES = 32

logger = logging.getLogger("ipu")
_stamped: dict[Path, float] = {}


def user_cache() -> Path:
    """$XDG_CACHE_HOME or the system's place for caches; not created here."""
    if os.environ.get("XDG_CACHE_HOME"):
        return Path(os.environ["XDG_CACHE_HOME"])
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    if sys.platform == "win32" and "LOCALAPPDATA" in os.environ:
        return Path(os.environ["LOCALAPPDATA"])
    return Path.home() / ".cache"


def cache_directory(kind: str) -> Path:
    """The folder software-ipu/<kind> in the user's cache; not created here."""
    return user_cache() / "software-ipu" / kind


def load(path: Path) -> bytes | None:
    """What `store` wrote under this path; None if there is no such file, or not all of it, or not only that."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    content = data[DIGEST_BYTES:]
    if hashlib.sha256(content).digest() != data[:DIGEST_BYTES]:
        return None
    _stamp(path.parent)
    return content


def store(path: Path, content: bytes) -> None:
    """Writes a file, which other processes see whole or not at all. Says once if that is not possible."""
    try:
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
            remove_unused(path.parent.parent)
        _stamp(path.parent)
        _replace(path, hashlib.sha256(content).digest() + content)
    except OSError as error:
        _notice(str(path.parent.parent), error.strerror or str(error))


def _replace(path: Path, data: bytes) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


_noticed: set[str] = set()


def _notice(folder: str, reason: str) -> None:
    if not _noticed:
        _noticed.add(folder)
        logger.warning(
            "Compiled code cannot be kept in %s (%s), so each process compiles anew. Expected a folder with space that "
            "can be written; set XDG_CACHE_HOME to choose another one.",
            folder,
            reason,
        )


@cache
def _stamp_name() -> str:
    return STAMP + re.sub(r"[^\w.-]", "_", platform.node() or "unknown")


def _stamp(folder: Path) -> None:
    """Notes, by the time of a file, that this machine uses a folder: when it is opened, and daily."""
    now = time.time()
    if now - _stamped.get(folder, 0.0) < STAMP_PERIOD:
        return
    _stamped[folder] = now
    with contextlib.suppress(OSError):  # a folder that can only be read is not ours to clean up
        (folder / _stamp_name()).touch()


def remove_unused(root: Path) -> None:
    """Deletes the folders of compiled code in `root` that nobody has used for long; never one used by this process."""
    with contextlib.suppress(OSError):
        for folder in root.iterdir():
            if FOLDER.fullmatch(folder.name) and folder not in _stamped and not folder.is_symlink():
                with contextlib.suppress(OSError):
                    if _is_unused(folder):
                        shutil.rmtree(folder, ignore_errors=True)


def _is_unused(folder: Path) -> bool:
    now, own = time.time(), _stamp_name()
    if now - folder.stat().st_mtime < UNUSED:
        return False
    return all(
        now - stamp.stat().st_mtime >= (UNUSED if stamp.name == own else UNUSED_ELSEWHERE)
        for stamp in folder.glob(STAMP + "*")
    )
