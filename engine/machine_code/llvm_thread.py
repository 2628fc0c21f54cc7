"""A thread in which LLVM compiles finished IR while Python writes more."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from engine.single_thread import SingleThread

SWITCH_INTERVAL = 0.0005
"""Seconds after which Python yields the GIL to this thread, which needs it only briefly between two LLVM calls."""

_lock = threading.Lock()
_open = 0
_before = 0.0


@contextmanager
def llvm_thread() -> Iterator[SingleThread]:
    """Yields one thread for functions that mostly call LLVM: llvmlite lets no two threads call it at once."""
    global _open, _before
    with _lock:
        if _open == 0:
            _before = sys.getswitchinterval()
            sys.setswitchinterval(SWITCH_INTERVAL)
        _open += 1
    try:
        with SingleThread("LLVM") as pool:
            yield pool
    finally:
        with _lock:
            _open -= 1
            if _open == 0:
                sys.setswitchinterval(_before)
