"""Contention for the cores: delays of runnable threads, idle time of the cores."""

from __future__ import annotations

import math
import os


def delay_of(thread: int) -> float:
    """Seconds for which a thread of this process was runnable but had no core, since it began; 0 if it ended."""
    try:  # a thread may end before its file is opened or read
        with open(f"/proc/self/task/{thread}/schedstat", "rb", buffering=0) as file:
            return 1e-9 * int(file.read(100).split()[1])
    except (OSError, IndexError):  # ended, or a kernel without schedstat
        return 0.0


def idle_seconds() -> float:
    """Idle seconds since boot, summed over the cores this process may use; infinity if unknown."""
    try:
        with open("/proc/stat", "rb") as file:
            fields = dict(line.split(maxsplit=1) for line in file if line.startswith(b"cpu"))
        times = [fields[b"cpu%d" % core].split() for core in os.sched_getaffinity(0)]
    except (OSError, KeyError):  # no /proc/stat
        return math.inf
    return sum(int(each[3]) + int(each[4]) for each in times) / os.sysconf("SC_CLK_TCK")
