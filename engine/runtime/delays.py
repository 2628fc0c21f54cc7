"""How long threads were kept from running while they could have: others had the cores. Known on Linux only."""

from __future__ import annotations

import os
import sys

if sys.platform.startswith("linux"):
    from resource import RUSAGE_THREAD, getrusage

    def delay_here() -> float:
        """Seconds for which the calling thread was kept from running since it began."""
        return delay_of("thread-self") if getrusage(RUSAGE_THREAD).ru_nivcsw else 0.0

    def delay_of(thread: int | str) -> float:
        """Seconds for which a thread of this process was kept from running since it began; 0 if it is gone."""
        path = f"/proc/{thread}/schedstat" if isinstance(thread, str) else f"/proc/self/task/{thread}/schedstat"
        try:
            file = os.open(path, os.O_RDONLY)
        except OSError:  # a thread that has ended, or a system that does not count
            return 0.0
        try:
            return 1e-9 * int(os.read(file, 100).split()[1])
        finally:
            os.close(file)

else:

    def delay_here() -> float:
        """Not known here."""
        return 0.0

    def delay_of(thread: int | str) -> float:
        """Not known here."""
        return 0.0
