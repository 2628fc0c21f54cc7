"""Files and folders are whole or absent whenever a process ends or a disk is full."""

from __future__ import annotations

import os
import re
import signal
import stat
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine import whole_files
from engine.whole_files import (
    ABANDONED_SECONDS,
    FORMER,
    STATE,
    check_space,
    put,
    remove,
    staged,
    write_all,
    write_whole,
)
from tests.fault_points import ERRORS, fails_at, fault_points, left_by_kills

Content = dict[str, str]


def content(place: Path) -> Content:
    """The text of all files in a folder by path, without files that are being written or deleted."""
    names = (path.relative_to(place) for path in place.rglob("*") if path.is_file())
    return {str(name): (place / name).read_text() for name in names if not any(p.startswith(".") for p in name.parts)}


def one(folder: Path, value: str) -> None:
    write_whole(folder / "one.txt", value)


def several(folder: Path, value: str) -> None:
    write_all({folder / "a.txt": value, folder / "b.txt": value.encode()})


def staged_file(folder: Path, value: str) -> None:
    with staged(folder / "staged.txt") as path:
        path.write_text(value)


def staged_folder(folder: Path, value: str) -> None:
    with staged(folder / "whole") as path:
        (path / "deep").mkdir(parents=True)
        for name in ("a", "deep/b"):
            (path / name).write_text(value)


def staged_prefix(folder: Path, value: str) -> None:
    with staged(folder / "w") as path:
        for name in ("w.data", "w.index", "checkpoint"):
            path.with_name(name).write_text(value)


def long_names(folder: Path, value: str) -> None:
    """Names of 250 bytes in which only the last characters differ."""
    write_all({folder / ("\u00e9" * 123 + name): value for name in (".a", ".b")})


WRITERS = [one, several, staged_file, staged_folder, staged_prefix]
ATOMIC = [one, staged_file, staged_folder]
"""Writers whose content is replaced by one rename."""


@pytest.mark.parametrize("write", WRITERS)
def test_a_kill_leaves_the_former_or_the_new(write: Callable[[Path, str], None], tmp_path: Path) -> None:
    folder = tmp_path / "f"
    folder.mkdir()
    for value in ("first", "second"):
        before = content(folder)
        kept = left_by_kills(lambda value=value: write(folder, value), folder, tmp_path / value)
        after = content(folder)
        assert before != after and {*after.values()} == {value} and len(kept) > 4
        found = [content(each) for each in kept]
        if write in ATOMIC:
            assert all(each in (before, after) for each in found)
        else:
            assert all(of_one_generation(each) for each in found)
        assert found[0] == before and found[-1] == after
        for each, left in zip(kept, found, strict=True):
            assert not before or before in (left, {**left, **formers(each)}) or left == after, "the former is lost"
            write(each, "third")
            assert {*content(each).values()} == {"third"} and not formers(each)


def of_one_generation(found: Content) -> bool:
    """Whether no parts of two writes are beside each other; TensorFlow's file `checkpoint` belongs to all."""
    return len({value for name, value in found.items() if name != STATE}) < 2


def formers(place: Path) -> Content:
    """The former parts that a killed writer left in a folder."""
    return {path.name[1 : -len(FORMER)]: path.read_text() for path in place.glob(f".*{FORMER}") if path.is_file()}


def test_what_names_others_is_renamed_after_them(tmp_path: Path) -> None:
    with fault_points(lambda number: None) as passed:
        staged_prefix(tmp_path, "x")
    assert [path.name for what, path in passed if what == "rename"] == ["w.data", "w.index", "checkpoint"]


@pytest.mark.parametrize("code", ERRORS.values(), ids=ERRORS)
@pytest.mark.parametrize("write", [*WRITERS, long_names])
def test_a_disk_that_fails_leaves_the_former_or_the_new(
    write: Callable[[Path, str], None], code: int, tmp_path: Path
) -> None:
    write(tmp_path, "former")
    before, number = content(tmp_path), 0
    while (error := fails_at(lambda: write(tmp_path, "new"), number, code)) is not None:
        assert error.errno == code
        number += 1
        found = content(tmp_path)
        assert found.keys() == before.keys() and of_one_generation(found)
        assert not formers(tmp_path) or {*found.values()} == {"new"}
        assert {*found.values()} == {"former"} or write not in ATOMIC or number > 3
        write(tmp_path, "former")
        assert content(tmp_path) == before
    assert number > 3 and {*content(tmp_path).values()} == {"new"}


@pytest.mark.parametrize("write", [several, staged_prefix])
def test_writers_at_once_never_mix_their_parts(write: Callable[[Path, str], None], tmp_path: Path) -> None:
    """Forks write the same files, some are killed while they do; what is left is of one, with its permissions."""
    write(tmp_path, "0")
    for path in tmp_path.iterdir():
        path.chmod(0o640)
    children = []
    for value in range(1, 9):
        child = os.fork()
        if child == 0:
            end = 20 if value % 2 else 10_000

            def act(passed: int, end: int = end) -> None:
                if passed == end:
                    os.kill(os.getpid(), signal.SIGKILL)

            try:
                with fault_points(act):
                    for _ in range(25):
                        write(tmp_path, str(value))
                os._exit(0)
            except BaseException:  # else this fork would go on as a second run of the tests
                traceback.print_exc()
                os._exit(1)
        children.append(child)
    ends = [os.waitpid(child, 0)[1] for child in children]
    assert {*ends[1::2]} == {0} and {*ends[::2]} == {signal.SIGKILL}
    assert of_one_generation(content(tmp_path))
    write(tmp_path, "last")
    assert {*content(tmp_path).values()} == {"last"} and not formers(tmp_path)
    assert {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in content(tmp_path)} == {0o640}


def test_a_folder_that_somebody_keeps_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fcntl = pytest.importorskip("fcntl")
    monkeypatch.setattr(whole_files, "LOCK_SECONDS", 0.05)
    handle = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        several(tmp_path, "first")
    finally:
        os.close(handle)
    assert content(tmp_path) == {"a.txt": "first", "b.txt": "first"}


@pytest.mark.parametrize("write", ATOMIC)
def test_killed_processes_leave_the_former(write: Callable[[Path, str], None], tmp_path: Path) -> None:
    """Forks are killed by SIGKILL at each change."""
    write(tmp_path, "former")
    before, number, killed = content(tmp_path), 0, True
    while killed:
        child = os.fork()
        if child == 0:
            with fault_points(lambda passed, n=number: os.kill(os.getpid(), signal.SIGKILL) if passed == n else None):
                write(tmp_path, "new")
            os._exit(0)
        killed = os.waitpid(child, 0)[1] == signal.SIGKILL
        assert content(tmp_path) in (before, {name: "new" for name in before})
        write(tmp_path, "former")
        number += 1
    assert number > 4


def test_a_full_disk(tmp_path: Path) -> None:
    """The kernel itself raises the error, for a device without space."""
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    with pytest.raises(OSError, match="No space left"):
        write_whole("/dev/full", "x" * 10_000)
    with pytest.raises(OSError, match="File too large|too large"):
        _limited(lambda: write_whole(tmp_path / "large", "x" * 10_000))
    assert not list(tmp_path.iterdir())


def _limited(write: Callable[[], None]) -> None:
    """Writes with a limit of 4096 bytes a file."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        write()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)


def test_space_is_checked_before(tmp_path: Path) -> None:
    check_space(tmp_path, 10_000)
    with pytest.raises(OSError, match=f"File too large.*{tmp_path}"):
        _limited(lambda: check_space(tmp_path, 10_000))
    assert not list(tmp_path.iterdir())


def test_an_error_inside_changes_nothing(tmp_path: Path) -> None:
    staged_folder(tmp_path, "former")
    before = content(tmp_path)

    def broken() -> None:
        with staged(tmp_path / "whole") as path:
            path.mkdir()
            (path / "a").write_text("new")
            raise KeyError("inside")

    with pytest.raises(KeyError, match="inside"):
        broken()
    assert content(tmp_path) == before and len(list(tmp_path.iterdir())) == 1


def test_folders_without_exchange(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Network file systems have no exchange: between two renames the former content has a separate name."""
    monkeypatch.setattr(whole_files, "_renameat2", lambda: None)
    for value in ("first", "second"):
        staged_folder(tmp_path, value)
        assert content(tmp_path) == {"whole/a": value, "whole/deep/b": value}
    assert len(list(tmp_path.iterdir())) == 1
    (tmp_path / "other").mkdir()
    written = tmp_path / "absent"
    with pytest.raises(OSError):
        put(written, tmp_path / "other")
    assert (tmp_path / "other").is_dir()


def test_deleted_folders_are_gone_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "f"
    staged_folder(folder, "x")
    before = content(folder)
    kept = left_by_kills(lambda: remove(folder / "whole"), folder, tmp_path / "copies")
    assert len(kept) == 3 and [content(each) for each in kept] == [before, {}, {}]
    assert not list(folder.iterdir())
    remove(folder / "whole")


def test_what_killed_writers_leave_is_deleted_later(tmp_path: Path) -> None:
    for name in (".one.txt.12345678.part", ".one.txt.dddddddd.part", ".other.txt.12345678.part"):
        (tmp_path / name).write_text("x")
    (tmp_path / ".one.txt.f.part").mkdir()
    (tmp_path / ".one.txt.f.part" / "a").write_text("x")
    one(tmp_path, "first")
    assert len(list(tmp_path.iterdir())) == 5
    old = time.time() - ABANDONED_SECONDS - 10
    for path in tmp_path.rglob("*"):
        if path.name != ".one.txt.dddddddd.part":
            os.utime(path, (old, old))
    one(tmp_path, "second")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *(".one.txt.dddddddd.part", ".other.txt.12345678.part", "one.txt")
    ]


def test_links_permissions_and_long_names_stay(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("former")
    target.chmod(0o640)
    link.symlink_to(target)
    write_whole(link, "new")
    assert link.is_symlink() and target.read_text() == "new" and target.stat().st_mode & 0o777 == 0o640
    with staged(link) as path:
        path.write_text("newer")
    assert link.is_symlink() and target.read_text() == "newer" and target.stat().st_mode & 0o777 == 0o640
    long = tmp_path / ("n" * 255)
    write_whole(long, "x")
    assert long.read_text() == "x"
    write_whole(tmp_path / "private", "x", mode=0o600)
    assert (tmp_path / "private").stat().st_mode & 0o777 == 0o600


def test_pipes_are_written_in_place(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_whole(pipe, "through")
        assert os.read(reader, 100) == b"through"
    finally:
        os.close(reader)
    assert pipe.is_fifo()


def test_no_function_writes_in_place() -> None:
    """All writers use this module, except those named here, each with its reason."""
    root = Path(whole_files.__file__).parent.parent
    writes = re.compile(
        r"""open\([^)]*["'](?:[wax]|r\+)b?["']|\.write_(?:text|bytes)\(|os\.(?:replace|rename)\("""
        r'''|np\.savez?\((?!content)|h5py\.File\([^)]*"a"'''
    )
    allowed: dict[str, str] = {
        "engine/whole_files.py": "the module itself",
        "keras_ext/frameworks/keras3_backup.py": "in the stage of a backup",
        "benchmarks/rivals/inference_calls.py": "results for the process that waits for them",
        "benchmarks/serving.py": "a log",
    }
    found: dict[str, Any] = {}
    for folder in ("engine", "ipu", "keras_ext", "benchmarks"):
        for path in (root / folder).rglob("*.py"):
            lines = [line.strip() for line in path.read_text().splitlines() if writes.search(line)]
            name = str(path.relative_to(root))
            if lines and name not in allowed:
                found[name] = lines
    assert not found
