"""The size of the processor's caches, into which blocks of operands and fused arrays should fit."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from engine.errors import ConfigurationError
from engine.machine_code import given_objects
from engine.machine_code.cores import allowed_cores, listed
from engine.machine_code.processor import lanes

VARIABLE = "SOFTWARE_IPU_CACHE_BYTES"
LARGE = 1 << 20
"""Least bytes of a large second-level cache, as most processors with AVX-512 have."""
LEAST, MOST = 1 << 15, 1 << 30
"""Legal values of the variable."""
SMALL = 1 << 19
"""Bytes assumed of processors without AVX-512 that are not known."""
SYSTEM = Path("/sys/devices/system/cpu")
UNITS = {"K": 1 << 10, "M": 1 << 20}


@cache
def second_level() -> int:
    """Bytes of second-level cache for a core of the processor that code is compiled for; the least, if cores differ.

    `SOFTWARE_IPU_CACHE_BYTES` in the environment overrides the number. If it is not set and there is no compiler, the
    number is that of the loaded object code. Raises ConfigurationError for values other than LEAST to MOST.
    """
    given = os.environ.get(VARIABLE, "").strip()
    if given:
        return _checked(given)
    if not given_objects.has_compiler():
        return given_objects.origin().cache_bytes
    other = "NUMBA_CPU_NAME" in os.environ  # that processor may have other caches than this machine
    found = [] if other else [size for size in map(_of_core, allowed_cores()) if size]
    return min(found, default=2 * LARGE if lanes() == 16 else SMALL)


def _checked(given: str) -> int:
    if not (given.isdecimal() and LEAST <= int(given) <= MOST):
        raise ConfigurationError(
            f"Expected {VARIABLE} to be the bytes of a cache, {LEAST} to {MOST}. Received: {given!r}. "
            f"Nearest usual value: {SMALL}; unset it for this processor's own."
        )
    return int(given)


def _of_core(core: int) -> int:
    """A core's share of its second-level cache in bytes; 0 if the system does not say."""
    folder = SYSTEM / f"cpu{core}"
    try:
        threads = len(listed(folder / "topology/thread_siblings_list")) or 1
        for each in (folder / "cache").glob("index*"):
            if (each / "level").read_text().strip() == "2":
                size = (each / "size").read_text().strip()
                cores = max(1, len(listed(each / "shared_cpu_list")) // threads)
                return int(size[:-1]) * UNITS[size[-1]] // cores
    except (OSError, ValueError, KeyError, IndexError):
        pass
    return 0
