"""Python's garbage collector, paused while many long-lived objects are allocated."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

MANY = 5_000
"""The fewest new objects for which a pause of the collector saves time."""
HEAP = 400_000
"""About the number of objects in a process with TensorFlow and the engine; after as many more, all are scanned once."""
_promoted = 0
_frozen = False
"""Whether the program has been seen to freeze objects. To count them takes 45 milliseconds in a large program."""
_promoting = threading.Lock()
"""A lock held while objects are frozen here: another thread would take them for objects that the program froze."""


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pauses the collector, which would scan all objects repeatedly: with TensorFlow loaded 0.25 s each time.

    Objects allocated meanwhile are old at the end: they are scanned with all others, and not before.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            _promote()
            gc.enable()


def _promote() -> None:
    """Makes all objects old without a scan, unless the program has ever frozen objects: these would thaw."""
    global _promoted, _frozen
    young = gc.get_count()[0]
    if young < MANY or _frozen or not _promoting.acquire(blocking=False):
        return
    try:
        _frozen = gc.get_freeze_count() > 0
        if _frozen:
            return
        _promoted += young
        gc.freeze()
        gc.unfreeze()
        if _promoted > HEAP:
            _promoted = 0
            gc.collect()
    finally:
        _promoting.release()
