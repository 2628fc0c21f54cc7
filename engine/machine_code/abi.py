"""ABI of all machine code: a codelet's signature, the worker's words in scratch."""

from __future__ import annotations

import ctypes
from enum import IntEnum
from functools import cache

ARGUMENTS = 4
"""A codelet is `void(int64 parameters, int64 lo, int64 hi, int64 scratch)`: it computes units lo <= unit < hi."""
CODELET_TYPE = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * ARGUMENTS)


@cache
def c_function(name: str) -> int:
    """The address of a function of the C library."""
    return ctypes.cast(getattr(ctypes.CDLL(None), name), ctypes.c_void_p).value or 0


class Scratch(IntEnum):
    """Words at the start of a worker's scratch; codelets may read them, and write from offset BYTES on."""

    STEP = 0
    STEPS = 1
    WORKER = 2
    ITERATION = 3  # COUNTERS words: the iteration of each enclosing loop with a known trip count, the outermost first
    BYTES = 64


RESERVED_SCRATCH = int(Scratch.BYTES)
