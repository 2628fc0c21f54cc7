"""Contention for the cores: delays of runnable threads, idle time of the cores. Known on Linux only."""

from __future__ import annotations

import math
import os
import sys

if sys.platform.startswith("linux"):
    from resource import RUSAGE_THREAD, getrusage

    def delay_here() -> float:
        """Seconds for which the calling thread was runnable but had no core, since it began."""
        return delay_of("thread-self") if getrusage(RUSAGE_THREAD).ru_nivcsw else 0.0

    def delay_of(thread: int | str) -> float:
        """Seconds for which a thread of this process was runnable but had no core, since it began; 0 if it ended."""
        path = f"/proc/{thread}/schedstat" if isinstance(thread, str) else f"/proc/self/task/{thread}/schedstat"
        try:  # a thread may end before its file is opened or read
            with open(path, "rb", buffering=0) as file:
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

else:

    def delay_here() -> float:
        """Returns 0: delays are unknown on this system."""
        return 0.0

    def delay_of(thread: int | str) -> float:
        """Returns 0: delays are unknown on this system."""
        return 0.0

    def idle_seconds() -> float:
        """Returns infinity: idle times are unknown on this system."""
        return math.inf
