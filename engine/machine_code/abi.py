"""ABI of all machine code: a codelet's signature, the worker's words in scratch, exception counters."""

from __future__ import annotations

import ctypes
from enum import IntEnum

ARGUMENTS = 4
"""A codelet is `void(int64 parameters, int64 lo, int64 hi, int64 scratch)`: it computes units lo <= unit < hi."""
CODELET_TYPE = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * ARGUMENTS)


class Scratch(IntEnum):
    """Words at the start of a worker's scratch; codelets may read them, and write from offset BYTES on."""

    STEP = 0
    STEPS = 1
    WORKER = 2
    ITERATION = 3  # COUNTERS words: the iteration of each enclosing loop with a known trip count, the outermost first
    BYTES = 64


COUNTERS = Scratch.BYTES // 8 - Scratch.ITERATION
RESERVED_SCRATCH = int(Scratch.BYTES)


class ExceptionWord(IntEnum):
    """Words in which machine code counts floating-point exceptions: one address, then counters in this order."""

    STOP = 0  # address of a word to which 1 is written to end the call; 0 if the call continues
    INVALID = 1
    DIVISION_BY_ZERO = 2
    OVERFLOW = 3
    WORDS = 4
