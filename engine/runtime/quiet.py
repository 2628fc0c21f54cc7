"""Keeps NumPy's BLAS threads from spinning while the engine's workers run."""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache

VARIABLE = "OPENBLAS_THREAD_TIMEOUT"
TICKS = "18"  # 2**18 ticks are 0.1 ms; measured to cost BLAS nothing


def _loaded_openblas() -> list[ctypes.CDLL]:
    """The OpenBLAS libraries this process has loaded (NumPy and SciPy bring one each)."""
    with open("/proc/self/maps") as maps:
        fields = [line.split(None, 5) for line in maps]
    paths = {f[5].strip() for f in fields if len(f) == 6 and "openblas" in f[5] and os.path.exists(f[5].strip())}
    libraries = [ctypes.CDLL(path) for path in sorted(paths)]
    return [lib for lib in libraries if hasattr(lib, "openblas_read_env") and hasattr(lib, "blas_thread_shutdown_")]


def quiet_from_the_start() -> None:
    """Makes NumPy's threads sleep after 0.1 ms, not 0.1 s, from their start on; to be called before NumPy's import."""
    if "numpy" not in sys.modules:
        os.environ.setdefault(VARIABLE, TICKS)


@cache
def quiet_openblas() -> int:
    """Makes idle OpenBLAS threads sleep after 0.1 ms, not 0.1 s; returns the number of libraries reached.

    NumPy's threads would otherwise spin on the workers' cores after any matrix product (1.7 times slower
    steps). Results, speed and number of BLAS threads stay as they are. Works once per process.
    OPENBLAS_THREAD_TIMEOUT in the environment disables it; 28 is OpenBLAS' own value. Do not call while another
    thread is in a BLAS function.
    """
    if VARIABLE in os.environ:
        return 0
    libraries = _loaded_openblas()
    if libraries:
        os.environ[VARIABLE] = TICKS
    for library in libraries:
        library.openblas_read_env()
        library.blas_thread_shutdown_()
    return len(libraries)
