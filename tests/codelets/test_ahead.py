"""Codelets compiled by a helper process: one helper at a time serves all that wait, and none depends on it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import ipu
from engine import cache_directory as disk
from engine.codelets import ahead
from engine.codelets.convolutions.cook_toom import OUTPUTS, WIDE_OUTPUTS
from engine.codelets.convolutions.winograd import product_of_tiles
from engine.codelets.host import rows
from engine.codelets.language.build import Codelet, building, make
from engine.codelets.language.record import block as words_of
from engine.codelets.pooling.pool_gradient import pool_gradient
from engine.ir import Shape
from engine.ir.attributes import WindowDimension
from engine.machine_code import helper_process
from engine.machine_code.abi import RESERVED_SCRATCH
from engine.program.buffer import Address, Buffer
from engine.program.work.offsets import Offsets
from engine.program.work.overlap_add import OverlapAdd
from engine.runtime import compile_ahead
from ipu.ipu_strategy import IPUStrategy
from tests.interrupting import HANGS_SECONDS


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(helper_process.VARIABLE, "1")
    monkeypatch.setattr(ahead, "MODULE", "tests.codelets.helpers")
    for name, value in {"_asked": False, "_lock": None}.items():
        monkeypatch.setattr(ahead, name, value)
    for name in ("_stamped", "_private"):
        monkeypatch.setattr(disk, name, type(getattr(disk, name))())
    yield tmp_path / "software-ipu"
    for folder in helpers_of(tmp_path / "software-ipu"):
        (folder / "go").touch()
        until_ended(folder)


def helpers_of(root: Path) -> list[Path]:
    return list(root.glob("ahead-*"))


def until_ended(folder: Path) -> None:
    limit = time.monotonic() + HANGS_SECONDS
    while time.monotonic() < limit:
        with helper_process.locked(folder / "lock") as handle:
            if handle is not None:
                return
        time.sleep(0.001)
    raise AssertionError("the helper does not end")


def started() -> Path:
    ahead._asked = False  # as in another process
    ahead.start()
    assert ahead._lock is not None
    return ahead._lock.parent


def attempts(folder: Path) -> int:
    return (folder / "lock").stat().st_size


def test_one_helper_at_a_time_works_for_all_processes() -> None:
    folder = started()
    assert started() == folder and attempts(folder) == 1 and ahead.is_running()
    assert os.stat(folder).st_mode & 0o777 == 0o700
    with contextlib.suppress(ChildProcessError):  # it has another parent, so it leaves no zombie
        assert os.waitpid(-1, os.WNOHANG) == (0, 0)
    (folder / "go").touch()
    until_ended(folder)
    assert (folder / "object").exists() and not ahead.is_running()
    ahead._asked = False
    ahead.start()
    assert ahead._lock is None and attempts(folder) == 1


def test_few_helpers_that_fail_are_started() -> None:
    for attempt in range(1, ahead.ATTEMPTS + 1):
        folder = started()
        assert attempts(folder) == attempt
        (folder / "fail").touch()
        (folder / "go").touch()
        until_ended(folder)
        assert not (folder / "object").exists() and not ahead.is_running()
        (folder / "go").unlink()
    ahead._asked = False
    ahead.start()
    assert ahead._lock is None and attempts(folder) == ahead.ATTEMPTS
    (folder / "lock").unlink()


def test_none_is_started_where_it_is_not_wanted_or_cannot_store(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(helper_process.VARIABLE, "0")
    ahead.start()
    assert not empty_cache.exists()
    monkeypatch.setenv(helper_process.VARIABLE, "1")
    empty_cache.mkdir(mode=0o777)
    empty_cache.chmod(0o777)
    ahead._asked = False
    ahead.start()
    assert ahead._lock is None and not helpers_of(empty_cache)
    empty_cache.chmod(0o700)
    empty_cache.rmdir()
    empty_cache.write_text("")
    ahead._asked = False
    ahead.start()
    assert ahead._lock is None


def test_a_home_that_cannot_be_found_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "cache_directory", lambda kind: Path("~no-such-user-here").expanduser())
    ahead.start()
    assert ahead._asked and ahead._lock is None


def test_programs_start_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of the API start the helper, and so does a strategy."""
    calls: list[None] = []
    monkeypatch.setattr(ahead, "start", lambda: calls.append(None))
    for count, name in enumerate(sorted(ipu.PROGRAMS), 1):
        ipu.__getattr__(name)
        assert len(calls) == count
    ipu.__getattr__("config")
    assert len(calls) == len(ipu.PROGRAMS)
    IPUStrategy()
    assert len(calls) == len(ipu.PROGRAMS) + 1


def test_its_module_is_importable_without_tensorflow() -> None:
    code = "import sys; from engine.runtime.compile_ahead import main; sys.exit('tensorflow' in sys.modules)"
    root = str(Path(ahead.__file__).parents[2])
    subprocess.run([sys.executable, "-P", "-c", f"import sys; sys.path.insert(0, {root!r}); {code}"], check=True)


def test_codelets_of_the_list_are_shared_with_the_helper(monkeypatch: pytest.MonkeyPatch) -> None:
    """The helper begins with the first codelet, so the process begins with the last, and loads what is stored."""
    folder = started()
    names = ("first", "second", "third", "other")
    codelets = [Codelet(rows.outfeed.function, name) for name in names]
    first, second, third, other = codelets
    object_code = bytes(Codelet(rows.outfeed.function, "first").prepared(first.path.stem)())
    for name, each in zip(("infeed", "outfeed", "zz_third"), codelets, strict=False):
        monkeypatch.setattr(rows, name, each, raising=False)
    *places, none = [ahead.place_of(each) for each in codelets]
    assert none is None and places == sorted(places)
    compiled: list[str] = []

    def compiling(name: str) -> None:
        compiled.append(name)
        if name == "second":
            disk.store(first.path, object_code)

    with building(compiling):
        make([first, third, other, second])
    assert compiled == ["other", "third", "second"] and all(each.is_made for each in codelets)
    (folder / "go").touch()
    block = rows.new_feed_block()
    source, target = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    rows.point_feed(block, target)
    parameters = rows.encode_outfeed(block.ctypes.data, source.ctypes.data, source.nbytes)[0]
    words, scratch = words_of(parameters).words, np.zeros(RESERVED_SCRATCH, np.int8)
    first(words.ctypes.data, 0, 1, scratch.ctypes.data)
    assert np.array_equal(target, source)


def test_usual_codelets_of_images_are_in_the_list_as_programs_ask_for_them() -> None:
    address, window = Address(Buffer("x", Shape("f32", (64,)))), (WindowDimension(3),)
    tables = Offsets(np.arange(4) * 4), Offsets(np.zeros(1))
    work = OverlapAdd(address, address, address, *tables, window, (4,), (2,), 1, 16, 8, 8, 4, "f32")
    again = pool_gradient.__wrapped__("UGE", "f32")
    convolutions = [product_of_tiles("f32", "f32", tile) for tile in (OUTPUTS, WIDE_OUTPUTS)]
    for codelet in (work.encode().codelet, pool_gradient("UGE", "f32"), again, *convolutions):
        assert ahead.place_of(codelet) is not None
    assert ahead.place_of(pool_gradient("LT", "f32")) is None


def test_the_helper_stores_all_of_the_list(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "MODULES", ("engine.codelets.host.rows",))
    monkeypatch.setattr(compile_ahead, "general_codelets", lambda: [fresh["outfeed"]])
    fresh = {name: Codelet(getattr(rows, name).function, name) for name in ("infeed", "outfeed")}
    monkeypatch.setattr(compile_ahead, "codelets_of", lambda modules: [fresh["infeed"]])
    niceness: list[int] = []
    monkeypatch.setattr(os, "nice", niceness.append)
    folder = empty_cache / "ahead-0123456789abcdef"
    compile_ahead.main(str(folder))
    assert all(each.path.exists() for each in fresh.values()) and niceness == [19]
    assert disk.load(ahead.made_in(folder)) == b""
