"""A process beside a program compiles loops, the last first, to the same objects, and only where that is worth it."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine import cache_directory as disk
from engine.emit import beside, compile_beside, library
from engine.emit.nest import Access, Apply, Constant, Input, Nest, Store
from engine.emit.registry import Operation
from engine.machine_code import helper_process
from engine.machine_code.helper_process import locked
from tests.interrupting import HANGS_SECONDS, wait_for

NESTS = [
    Nest(
        (False,),
        0,
        (Access("f32", "contiguous"), Access("f32", "contiguous")),
        (Input(0), Constant("f32", repr(number + 0.125)), Apply(Operation("add", "f32", ("f32", "f32")), (0, 1))),
        (Store(2, 1),),
    )
    for number in range(4)
]


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(helper_process.VARIABLE, "1")
    monkeypatch.setattr(beside, "FEWEST", len(NESTS))
    monkeypatch.setattr(beside, "_cores", lambda: 2)
    monkeypatch.setattr(library, "_ADDRESSES", {})
    for name in ("_stamped", "_private"):
        monkeypatch.setattr(disk, name, type(getattr(disk, name))())


def run_at_once(module: str, argument: str, *handles: int) -> None:
    """Does the helper's work in this process, in place of `spawn`."""
    assert module == compile_beside.__name__ and int(argument) in handles
    compile_beside.main(str(os.dup(int(argument))))


def paths() -> list[Path]:
    return [library.path_of(each) for each in NESTS]


def test_a_program_takes_what_its_helper_has_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(helper_process.VARIABLE, "0")
    library.addresses_of(NESTS)
    alone = [path.read_bytes() for path in paths()]
    for path in paths()[1:]:
        path.unlink()
    monkeypatch.setenv(helper_process.VARIABLE, "1")
    monkeypatch.setattr(beside, "FEWEST", len(NESTS) - 1)
    monkeypatch.setattr(beside, "spawn", run_at_once)
    written: list[object] = []
    write = library.prepared
    monkeypatch.setattr(compile_beside, "prepared", lambda each, name: (written.append(each), write(each, name))[1])
    monkeypatch.setattr(library, "prepared", lambda each, name: pytest.fail("the helper has stored it"))
    monkeypatch.setattr(library, "_ADDRESSES", {})
    assert library.addresses_of(NESTS).keys() == set(NESTS)
    assert written == NESTS[:0:-1], "from the last on, without what is there"
    assert [path.read_bytes() for path in paths()] == alone


def test_the_process_stores_them() -> None:
    folder = paths()[0].parent
    assert beside.compile_beside(NESTS, folder)
    with (folder / "lock").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # the helper holds the lock as long as it lives
    assert all(disk.load(path) for path in paths())


def test_one_helper_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = paths()[0].parent
    folder.mkdir(parents=True, mode=0o700)
    folder.parent.chmod(0o700)
    monkeypatch.setattr(beside, "spawn", lambda *arguments: pytest.fail("another one lives"))
    with locked(folder / "lock"):
        assert beside.compile_beside(NESTS, folder), "what that one stores is taken, too"


@pytest.mark.parametrize("reason", ["few", "unwanted", "one core", "writable by others", "no folder"])
def test_none_is_started(reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "spawn", lambda *arguments: pytest.fail("started"))
    folder = tmp_path / "software-ipu" / "objects"
    nests = NESTS[1:] if reason == "few" else NESTS
    if reason == "unwanted":
        monkeypatch.setenv(helper_process.VARIABLE, "0")
    elif reason == "one core":
        monkeypatch.setattr(beside, "_cores", lambda: 1)
    elif reason == "writable by others":
        folder.mkdir(parents=True)
        folder.chmod(0o777)
    elif reason == "no folder":
        folder.parent.write_text("")
    assert not beside.compile_beside(nests, folder)


@pytest.mark.parametrize("options", [[], ["-I"], ["-E"], ["-s"], ["-E", "-s"], ["-P"]])
def test_helpers_are_as_isolated_as_their_parents(options: list[str], tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    code = f"""
import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from engine.machine_code import helper_process
helper_process.sys.executable = {str(tmp_path / "python")!r}
helper_process.spawn("engine.nothing", "x")
"""
    shell = tmp_path / "python"
    shell.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {seen}.new\nmv {seen}.new {seen}\n')
    shell.chmod(0o755)
    subprocess.run([sys.executable, *options, "-c", code], check=True, timeout=HANGS_SECONDS)
    wait_for(seen.exists)
    given = set(seen.read_text().splitlines()[: seen.read_text().splitlines().index("-c")])
    assert given == {"-P", "-W", "ignore", *({"-I", "-E", "-s"} if options == ["-I"] else set(options))}
