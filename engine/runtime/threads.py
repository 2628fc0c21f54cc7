"""The number of worker threads, and the cores to which they move."""

from __future__ import annotations

import os
from collections.abc import Sequence

from engine.errors import ConfigurationError
from engine.machine_code.cores import allowed_cores, full_cores, quota


def usable_cores() -> int:
    """Number of cores on which this process has workers by default: one for each core that is as fast as most.

    Threads that share a core share its arithmetic units, too. A container's quota counts as so many cores: with more
    workers, the system stops all of them until the next period.
    """
    return min(len(full_cores()), quota())


def most_workers() -> int:
    """The largest number of workers that run at the same time: those without a core would only delay the others."""
    return min(len(allowed_cores()), quota())


def is_worker_count_given() -> bool:
    """Whether NUMBA_NUM_THREADS sets the number of workers, even where fewer would do."""
    return bool(os.environ.get("NUMBA_NUM_THREADS", "").strip())


def worker_count() -> int:
    """NUMBA_NUM_THREADS if it is set, but not more than the logical cores; else the usable cores. Read at each call.

    Raises ConfigurationError if the variable is not a positive number.
    """
    text = os.environ.get("NUMBA_NUM_THREADS", "").strip()
    if not text:
        return usable_cores()
    if not text.isdecimal() or int(text) < 1:
        raise ConfigurationError(
            f"Expected a positive number in NUMBA_NUM_THREADS. Received: {text!r}. "
            f"Nearest legal value: 1; unset it to use {usable_cores()} cores."
        )
    return min(int(text), most_workers())


def cores_to_spread(workers: int) -> Sequence[int]:
    """The core of each of `workers` workers; empty where the scheduler is to decide.

    New threads often begin on one core, and the scheduler takes some 5 ms to spread them. They are moved to a core
    each, once, and not pinned; but only where every core gets a worker: otherwise the scheduler knows better which
    cores are free.
    """
    cores = full_cores()
    return cores if workers == len(cores) > 1 else ()
