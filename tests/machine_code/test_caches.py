"""The second-level cache as Linux describes it, as the environment gives it, and where nothing is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import ConfigurationError
from engine.machine_code import caches, costs


def describe(folder: Path, core: int, size: str, shared: str, threads: str) -> None:
    """Writes the files of one core, with the second level as its index2."""
    described = {"topology/thread_siblings_list": threads}
    for index, level, found in (("index0", "1", "32K"), ("index2", "2", size)):
        cache = f"cache/{index}"
        described |= {f"{cache}/level": level, f"{cache}/size": found, f"{cache}/shared_cpu_list": shared}
    for name, text in described.items():
        path = folder / f"cpu{core}" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in place of Linux's, without cores, for a process that may use cores 0, 1 and 2."""
    monkeypatch.setattr(caches, "SYSTEM", tmp_path)
    monkeypatch.setattr(caches, "allowed_cores", lambda: (0, 1, 2))
    for name in (caches.VARIABLE, "NUMBA_CPU_NAME"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def found() -> int:
    return caches.second_level.__wrapped__()


def test_least_share_of_a_core(system: Path) -> None:
    describe(system, 0, "2M", "0-1", "0-1")  # the two threads of one core
    assert found() == 2 << 20
    describe(system, 1, "512K", "1", "1")
    assert found() == 512 << 10
    describe(system, 2, "1024K", "2,4-6", "2")  # four cores share this one
    assert found() == 256 << 10


@pytest.mark.parametrize(("lanes", "size"), [(16, 2 << 20), (8, 512 << 10)])
@pytest.mark.parametrize("text", [None, "", "many", "512Q"])
def test_default(system: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, lanes: int, size: int) -> None:
    if text is not None:
        describe(system, 0, text, "0", "0")
    monkeypatch.setattr(caches, "lanes", lambda: lanes)
    assert found() == size


def test_another_processor_has_the_default(system: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    describe(system, 0, "256K", "0", "0")
    monkeypatch.setenv("NUMBA_CPU_NAME", "haswell")
    monkeypatch.setattr(caches, "lanes", lambda: 8)
    assert found() == caches.SMALL


def test_environment_overrides(system: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(caches.VARIABLE, "65536")
    assert found() == 65536
    for wrong in ("512K", "-1", "1.5", "1", "99999999999"):
        monkeypatch.setenv(caches.VARIABLE, wrong)
        with pytest.raises(ConfigurationError, match=f"Received: '{wrong}'"):
            found()


@pytest.mark.parametrize(("size", "used"), [(1 << 19, 1 << 19), (1 << 20, 1 << 21), (1 << 21, 1 << 21)])
def test_costs_follow_small_caches(size: int, used: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "second_level", lambda: size)
    monkeypatch.delenv(costs.VARIABLE, raising=False)
    assert costs.costs.__wrapped__().cache_bytes == used
