"""The cores for workers: one thread of each core, fast ones where cores differ, and no more than a container's quota.

Each barrier waits for the slowest worker, so a worker on a slow core, or on a core that it shares, delays all others.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

SYSTEM = Path("/sys")
PROCESS = Path("/proc/self/cgroup")
UNLIMITED = 1 << 20
EFFICIENCY = 0.5
"""Speed of an Intel efficiency core in vector arithmetic, as a share of a performance core's: half the units."""


def allowed_cores() -> tuple[int, ...]:
    """Numbers of the logical cores that this process may run on."""
    return tuple(sorted(os.sched_getaffinity(0)))


def full_cores() -> tuple[int, ...]:
    """Numbers of the allowed cores with which equal shares of the work end first."""
    return _full_cores(allowed_cores())


@cache
def _full_cores(allowed: tuple[int, ...]) -> tuple[int, ...]:
    firsts = [core for core in allowed if core == min(_siblings(core) & set(allowed), default=core)]
    speeds = _speeds(firsts)
    by_speed = sorted(firsts, key=lambda core: -speeds[core])
    best = max(range(1, len(by_speed) + 1), key=lambda count: count * speeds[by_speed[count - 1]])
    return tuple(sorted(by_speed[:best]))


def _siblings(core: int) -> set[int]:
    """The logical cores that share a core's arithmetic units."""
    return listed(SYSTEM / f"devices/system/cpu/cpu{core}/topology/thread_siblings_list") or {core}


def _speeds(cores: list[int]) -> dict[int, float]:
    """Relative speeds of cores, as the system states them; 1 where it does not."""
    slow = listed(SYSTEM / "devices/cpu_atom/cpus")
    speeds = {core: EFFICIENCY if core in slow else 1.0 for core in cores}
    capacities = {core: _number(SYSTEM / f"devices/system/cpu/cpu{core}/cpu_capacity") for core in cores}
    return speeds if slow or not all(capacities.values()) else capacities


@cache
def quota() -> int:
    """Cores whose time the control groups of this process have, rounded, at least 1; UNLIMITED without a quota."""
    shares = [share for group in _groups() if (share := _share(group)) > 0]
    return max(1, int(min(shares) + 0.5)) if shares else UNLIMITED


def _groups() -> list[Path]:
    """Folders of the process's control groups with processor time, of both versions, and of all that contain them."""
    folders = []
    for line in _text(PROCESS).splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controllers and "cpu" not in controllers.split(","):
            continue
        names = ("cpu", controllers) if controllers else ("", "unified")
        below = Path(path.lstrip("/"))
        folders += [SYSTEM / "fs/cgroup" / name / each for name in names for each in (below, *below.parents)]
    return folders


def _share(group: Path) -> float:
    """A control group's quota in cores; 0 without one."""
    quota, _, period = _text(group / "cpu.max").strip().partition(" ")
    if not quota:
        quota, period = (_text(group / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period"))
    return int(quota) / int(period) if quota.isdecimal() and period.isdecimal() and int(period) else 0.0


def listed(path: Path) -> set[int]:
    """The processors in a list such as 0-3,8; none if there is no such file."""
    ends = [part.partition("-") for part in _text(path).strip().split(",") if part]
    return {core for first, _, last in ends for core in range(int(first), int(last or first) + 1)}


def _number(path: Path) -> float:
    text = _text(path).strip()
    return float(text) if text.isdecimal() else 0.0


def _text(path: Path) -> str:
    """The content of a file of the system; empty if there is none."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
