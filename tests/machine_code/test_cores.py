"""Cores for workers: siblings, efficiency cores, and quotas of containers, on machines described by files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.machine_code import cores
from engine.runtime import threads


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in place of /sys, in which nothing is stated yet."""
    monkeypatch.setattr(cores, "SYSTEM", tmp_path)
    monkeypatch.setattr(cores, "PROCESS", tmp_path / "self")
    monkeypatch.delenv("NUMBA_NUM_THREADS", raising=False)
    for each in (cores._full_cores, cores.quota):
        each.cache_clear()
    yield tmp_path
    for each in (cores._full_cores, cores.quota):
        each.cache_clear()


def has_cores(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(count)), raising=False)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def cpu(system: Path, core: int) -> Path:
    return system / f"devices/system/cpu/cpu{core}"


def test_without_any_statement_all_cores_are_equal(system: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    has_cores(monkeypatch, 6)
    assert cores.full_cores() == (0, 1, 2, 3, 4, 5)
    assert cores.quota() == cores.UNLIMITED
    assert threads.worker_count() == 6


@pytest.mark.parametrize(
    ("siblings", "expected"),
    [
        ([(0, 4), (1, 5), (2, 6), (3, 7)], (0, 1, 2, 3)),  # as AMD and most clouds number them
        ([(0, 1), (2, 3), (4, 5), (6, 7)], (0, 2, 4, 6)),  # as Intel's clients do
        ([(core,) for core in range(8)], tuple(range(8))),
    ],
)
def test_siblings_get_one_worker(
    siblings: list[tuple[int, ...]], expected: tuple[int, ...], system: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_cores(monkeypatch, 8)
    for group in siblings:
        for core in group:
            write(cpu(system, core) / "topology/thread_siblings_list", ",".join(map(str, group)))
    assert cores.full_cores() == expected
    assert threads.worker_count() == len(expected)
    assert threads.cores_to_spread(len(expected)) == expected
    monkeypatch.setenv("NUMBA_NUM_THREADS", "7")
    assert threads.worker_count() == 7


def test_a_sibling_that_is_not_allowed_does_not_count(system: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {5, 6}, raising=False)
    for core in (5, 6):
        write(cpu(system, core) / "topology/thread_siblings_list", f"{core - 4}-{core - 4},{core}")
    assert cores.full_cores() == (5, 6)


@pytest.mark.parametrize(("fast", "slow", "used"), [(6, 8, 14), (8, 4, 8), (2, 8, 10), (4, 4, 4)])
def test_efficiency_cores_are_used_where_they_are_many(
    fast: int, slow: int, used: int, system: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal shares on all cores take as long as on a slow one: with half of the speed, twice as many must help."""
    has_cores(monkeypatch, fast + slow)
    write(system / "devices/cpu_atom/cpus", f"{fast}-{fast + slow - 1}")
    assert len(cores.full_cores()) == used
    assert set(cores.full_cores()) == set(range(used))


def test_capacities_of_arm_cores(system: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    has_cores(monkeypatch, 8)
    for core, capacity in enumerate([250, 250, 250, 250, 870, 870, 870, 1024]):
        write(cpu(system, core) / "cpu_capacity", str(capacity))
    assert cores.full_cores() == (4, 5, 6, 7)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"self": "0::/", "fs/cgroup/cpu.max": "200000 100000"}, 2),
        ({"self": "0::/a/b", "fs/cgroup/a/cpu.max": "150000 100000", "fs/cgroup/a/b/cpu.max": "max 100000"}, 2),
        ({"self": "0::/", "fs/cgroup/cpu.max": "20000 100000"}, 1),
        ({"self": "0::/", "fs/cgroup/cpu.max": "max 100000"}, 8),
        (
            {
                "self": "4:cpu,cpuacct:/docker/x\n0::/",
                "fs/cgroup/cpu/cpu.cfs_quota_us": "300000",
                "fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            3,
        ),
        ({"self": "2:cpu:/", "fs/cgroup/cpu/cpu.cfs_quota_us": "-1", "fs/cgroup/cpu/cpu.cfs_period_us": "100000"}, 8),
        ({"self": "3:memory:/x\nnonsense", "fs/cgroup/x/cpu.max": "100000 100000"}, 8),
        ({"self": "0::/", "fs/cgroup/cpu.max": "1.5 x"}, 8),
    ],
)
def test_quotas_of_containers(
    files: dict[str, str], expected: int, system: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_cores(monkeypatch, 8)
    for name, text in files.items():
        write(system / name, text)
    assert threads.usable_cores() == expected
    assert threads.worker_count() == expected
    assert not threads.cores_to_spread(expected) or expected == 8
