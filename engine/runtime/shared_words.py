"""Words that the host reads or writes while workers run, with the order that processors other than x86 do not keep.

What a worker wrote before it stored a word is there for the host once it has loaded the word, and the other way round.
"""

from __future__ import annotations

import ctypes

from engine.codelets.host.queues import load_word, store_word


def load(address: int) -> int:
    """The int64 at an address, loaded with acquire ordering."""
    seen = ctypes.c_int64()
    load_word(address, ctypes.addressof(seen), 0, 0)
    return seen.value


def store(address: int, value: int) -> None:
    """Stores an int64 with release ordering."""
    store_word(address, value, 0, 0)
