"""Compiled code on disk: shared, torn, read-only, full and forgotten folders."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from llvmlite import binding

from engine import cache_directory as disk
from engine import whole_files
from engine.cache_directory import UNUSED, UNUSED_ELSEWHERE, load, remove_unused, store
from engine.codelets.language.build import GivenCode, make
from engine.machine_code import keys
from engine.machine_code.elf import link
from engine.machine_code.llvm_thread import llvm_thread
from engine.machine_code.objects import Compile, begin_object
from engine.machine_code.optimising import compile_text
from tests.interrupting import HANGS_SECONDS

TEXT = """
define i64 @answer() {
  ret i64 42
}
"""
PLACE = Path(__file__)
PROGRAM = """
import ctypes
from functools import partial
from importlib import metadata
from pathlib import Path
from engine.machine_code.elf import link
from engine.machine_code.keys import folder
from engine.machine_code.llvm_thread import llvm_thread
from engine.machine_code.objects import begin_object
from engine.machine_code.optimising import compile_text
texts = []
def text():
    texts.append(1)
    return partial(compile_text, {text!r})
with llvm_thread() as pool:
    code = begin_object(folder("objects", Path({place!r})) / "answer.o", text, pool)()
address = link([code])["answer"]
print(len(texts), ctypes.CFUNCTYPE(ctypes.c_int64)(address)())
"""


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(disk, "_noticed", set())
    monkeypatch.setattr(disk, "_stamped", {})
    monkeypatch.setattr(disk, "_private", set())


def made() -> tuple[int, bytes]:
    """The number of times that the text was asked for, and the object."""
    asked = []

    def text() -> Compile:
        asked.append(1)
        return partial(compile_text, TEXT)

    with llvm_thread() as pool:
        code = begin_object(keys.folder("objects", PLACE) / "answer.o", text, pool)()
    assert link([code])["answer"]
    return len(asked), code


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(disk.STAMP)]


def test_second_request_finds_the_file(tmp_path: Path) -> None:
    assert made()[0] == 1 and made()[0] == 0
    (path,) = files(tmp_path)
    assert path.parent.name.startswith("objects-") and load(path) == made()[1]


def test_progress_is_told_of_what_is_compiled_and_not_of_what_is_loaded() -> None:
    told: list[tuple[str, int, int]] = []

    def makes() -> int:
        before, path = len(told), keys.folder("objects", PLACE) / "answer.o"
        make([GivenCode(path, prepare=lambda symbol: partial(compile_text, TEXT))], lambda *seen: told.append(seen))
        return len(told) - before

    assert makes() and not makes()


@pytest.mark.parametrize(
    "damage",
    [lambda data: data[:-1], lambda data: b"", lambda data: data[:40] + bytes([data[40] ^ 1]) + data[41:]],
    ids=["truncated", "empty", "flipped"],
)
def test_damaged_files_are_made_again(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    _, code = made()
    (path,) = files(tmp_path)
    path.write_bytes(damage(path.read_bytes()))
    assert made() == (1, code) and made() == (0, code)


def test_full_disk_goes_on_and_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fdopen = os.fdopen

    class Full:
        def __init__(self, handle: int, mode: str) -> None:
            self._file = fdopen(handle, mode)

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *error: object) -> None:
            self._file.close()

        def write(self, data: bytes) -> None:
            self._file.write(data[:100])
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(disk.os, "fdopen", Full)
    with caplog.at_level(logging.WARNING, "ipu"):
        assert made()[0] == 1 and made()[0] == 1
    assert [record.getMessage() for record in caplog.records if "No space left" in record.getMessage()] == [
        caplog.records[0].getMessage()
    ]
    assert files(tmp_path) == []


def test_folder_that_cannot_be_made_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    assert made()[0] == 1 and blocked.read_text() == ""


def test_read_only_folder_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made()

    def refuse(*arguments: Any, **named: Any) -> Any:
        raise OSError(errno.EROFS, "Read-only file system")

    # root may write everywhere, so permissions alone would not stop it.
    for owner, name in ((whole_files, "_write"), (disk, "touch"), (Path, "mkdir")):
        monkeypatch.setattr(owner, name, refuse)
    monkeypatch.setattr(disk, "_stamped", {})
    assert made()[0] == 0 and not caplog.records
    (path,) = files(tmp_path)
    store(path.with_name("other.o"), b"code")
    store(path.with_name("another.o"), b"code")
    assert len(caplog.records) == 1 and "Read-only" in caplog.text


def test_three_cold_processes_at_once(tmp_path: Path) -> None:
    program = PROGRAM.format(text=TEXT, place=str(PLACE))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program]
    running = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [each.communicate(timeout=HANGS_SECONDS)[0].split()[1] for each in running] == ["42"] * 3
    assert made()[0] == 0 and len(files(tmp_path)) == 1


@pytest.mark.parametrize("what", ["processor", "features", "llvm", "numba", "source"])
def test_another_compiler_processor_or_source_has_another_folder(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nest.py").write_text("first")
    fingerprint = keys.fingerprint.__wrapped__
    before = fingerprint(tmp_path)
    assert before == fingerprint(tmp_path)
    if what == "processor":
        monkeypatch.setattr(keys, "target", lambda: ("another", frozenset({"avx2"})))
    elif what == "features":
        monkeypatch.setattr(keys, "features_text", lambda: "+avx2")
    elif what == "llvm":
        monkeypatch.setattr(binding, "llvm_version_info", (99, 0, 0))
    elif what == "numba":
        monkeypatch.setattr(metadata, "version", lambda name: f"{name} 99")
    else:
        (tmp_path / "nest.py").write_text("changed")
    assert fingerprint(tmp_path) != before


def aged(folder: Path, seconds: float, stamp: str | None = None) -> Path:
    """Makes a folder last used `seconds` seconds ago, by this machine unless `stamp` names another."""
    folder.mkdir(parents=True)
    (folder / "code.o").write_bytes(b"code")
    marker = folder / (disk.STAMP + stamp if stamp else disk._stamp_name())
    marker.touch()
    then = time.time() - seconds
    for path in (marker, folder):
        os.utime(path, (then, then))
    return folder


def test_unused_folders_are_deleted(tmp_path: Path) -> None:
    root = tmp_path / "software-ipu"
    names = [f"{kind}-{number:016x}" for number, kind in enumerate(("codelets", "objects", "objects", "codelets"))]
    old = [aged(root / names[0], UNUSED + 60), aged(root / "objects", UNUSED + 60)]
    old.append(aged(root / names[1], UNUSED_ELSEWHERE + 60, "elsewhere"))
    young = [aged(root / names[2], UNUSED - 3600), aged(root / names[3], UNUSED + 60, "elsewhere")]
    foreign = aged(root / "notes", UNUSED_ELSEWHERE + 60)
    remove_unused(root)
    assert not any(folder.exists() for folder in old)
    assert all(folder.exists() for folder in (*young, foreign))


def test_reading_counts_as_use(tmp_path: Path) -> None:
    root = tmp_path / "software-ipu"
    folder = aged(root / "objects-0000000000000001", UNUSED + 60)
    store(folder / "used.o", b"code")
    for path in (folder, folder / disk._stamp_name()):
        os.utime(path, (0, 0))
    disk._stamped.clear()
    assert load(folder / "used.o") == b"code"
    disk._stamped.clear()  # to act as another process
    remove_unused(root)
    assert folder.exists()


def test_folder_in_use_by_this_process_stays(tmp_path: Path) -> None:
    folder = tmp_path / "software-ipu" / "objects-0000000000000001"
    store(folder / "used.o", b"code")
    for path in (folder, folder / disk._stamp_name()):
        os.utime(path, (0, 0))
    remove_unused(folder.parent)
    assert folder.exists()


def test_new_folder_removes_old_ones(tmp_path: Path) -> None:
    old = aged(tmp_path / "software-ipu" / "codelets-0000000000000001", UNUSED + 60)
    made()
    assert not old.exists()


def test_unused_files_of_a_folder_in_use_are_deleted(tmp_path: Path) -> None:
    """Files are kept longer if other machines use the folder, too; a file that is read counts as used."""
    folder = disk.cache_directory("objects")
    old, read = folder / "old.o", folder / "read.o"
    for path in (old, read):
        store(path, b"code")
        os.utime(path, (0, time.time() - UNUSED - disk.DAY))
    assert load(read) == b"code"
    elsewhere = folder / (disk.STAMP + "another-machine")
    elsewhere.touch()
    remove_unused(folder.parent)
    assert old.exists() and read.exists()
    elsewhere.unlink()
    remove_unused(folder.parent)
    assert not old.exists() and load(read) == b"code"


def test_a_process_of_another_day_deletes_unused_files(tmp_path: Path) -> None:
    folder = disk.cache_directory("objects")
    old, stamp = folder / "old.o", folder / disk._stamp_name()
    store(old, b"code")
    os.utime(old, (0, time.time() - UNUSED - disk.DAY))
    for age in (0.5 * disk.DAY, 1.5 * disk.DAY):
        assert old.exists()
        os.utime(stamp, (0, time.time() - age))
        disk._stamped.clear()
        load(folder / "another.o")
        store(folder / "another.o", b"more")
    assert not old.exists()


def test_files_longest_unused_go_first_above_the_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [disk.cache_directory(kind) / f"{k}.o" for k in range(4) for kind in ("objects", "programs")]
    for age, path in enumerate(paths):
        store(path, bytes(1000))
        os.utime(path, (0, time.time() - 100.0 * age))
    monkeypatch.setattr(disk, "MOST_BYTES", 5 * (1000 + disk.DIGEST_BYTES))
    remove_unused(paths[0].parent.parent)
    assert [path.exists() for path in paths] == [True] * 5 + [False] * 3
