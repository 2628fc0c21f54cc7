"""Compiled code is read only from files and folders that the user alone can have written; a pipe never blocks."""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path

import pytest

from engine import cache_directory as disk
from engine import private_files
from engine.cache_directory import load, store
from tests.machine_code.test_library_cache import files, fresh, made

__all__ = ["fresh"]
STRANGER = 54321
pytestmark = pytest.mark.skipif(os.name == "nt", reason="owners and modes are those of POSIX")


def kept(folder: Path) -> Path:
    """The only file of code, after it is made."""
    assert made()[0] == 1
    (path,) = files(folder)
    return path


def give_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes a file or folder another user's; new files belong to this user."""
    if os.geteuid() == 0:
        os.chown(path, STRANGER, STRANGER)
        return
    stat_of, given = os.stat_result, path.stat().st_ino
    fault = private_files.fault
    monkeypatch.setattr(
        private_files,
        "fault",
        lambda status: (
            fault(stat_of((*status[:4], STRANGER, *status[5:]))) if status.st_ino == given else fault(status)
        ),
    )


def is_said_once(caplog: pytest.LogCaptureFixture, *words: str) -> bool:
    return len(caplog.records) == 1 and all(word in caplog.text for word in words)


def test_a_pipe_in_place_of_a_file_does_not_block(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = kept(tmp_path)
    path.unlink()
    os.mkfifo(path)
    for stamp in path.parent.glob(disk.STAMP + "*"):
        stamp.unlink()
        os.mkfifo(stamp)
    disk._stamped.clear()
    with caplog.at_level(logging.WARNING, "ipu"):
        assert made()[0] == 1
    assert is_said_once(caplog, str(path), "Received: a pipe") and path.is_file() and made()[0] == 0


@pytest.mark.parametrize("mode", ["foreign", "group", "all"])
def test_a_file_of_others_is_rebuilt(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = kept(tmp_path)
    if mode == "foreign":
        give_away(path, monkeypatch)
    else:
        path.chmod(0o660 if mode == "group" else 0o602)
    with caplog.at_level(logging.WARNING, "ipu"):
        assert made()[0] == 1 and made()[0] == 0
    words = (str(STRANGER),) if mode == "foreign" else ("chmod go-w",)
    assert is_said_once(caplog, "not used", *words)


@pytest.mark.parametrize("which", ["leaf", "root"])
@pytest.mark.parametrize("mode", ["foreign", "group", "sticky", "pipe"])
def test_a_folder_of_others_is_not_used(
    which: str, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = kept(tmp_path).parent
    folder = folder if which == "leaf" else folder.parent
    if mode == "foreign":
        give_away(folder, monkeypatch)
    elif mode == "pipe":
        folder.rename(tmp_path / "moved")
        os.mkfifo(folder)
    else:
        folder.chmod(0o770 if mode == "group" else 0o1777)
    disk._private.clear()
    before = {path: path.stat().st_mtime_ns for path in files(tmp_path)}
    with caplog.at_level(logging.WARNING, "ipu"):
        assert made()[0] == 1 and made()[0] == 1
    assert is_said_once(caplog, "cannot be kept in", "only you can write")
    assert {path: path.stat().st_mtime_ns for path in files(tmp_path)} == before


def test_new_folders_are_the_user_s_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        path = kept(tmp_path)
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(each.stat().st_mode) for each in (path.parent.parent, path.parent, path)]
    assert modes == [0o700, 0o700, 0o600] and made()[0] == 0


def test_no_flip_no_cut_and_no_other_name_passes(tmp_path: Path) -> None:
    path = tmp_path / "objects" / "code.o"
    content = bytes(range(48))
    store(path, content)
    whole = path.read_bytes()
    assert load(path) == content
    for place in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[place // 8] ^= 1 << place % 8
        path.write_bytes(flipped)
        assert load(path) is None
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert load(path) is None
    path.write_bytes(whole + b"\0")
    assert load(path) is None
    path.write_bytes(whole)
    path.rename(path.with_name("other.o"))
    assert load(path.with_name("other.o")) is None
