"""Outfeed queues: the public names of `tensorflow.python.ipu.ipu_outfeed_queue` (Python API, 18.5)."""

from ipu._internal.names.namespace import public_names
from ipu._internal.queues.outfeed_queue import (
    IPUOutfeedMode,
    IPUOutfeedQueue,
    IPUOutfeedQueueIterator,
    ScopedIPUOutfeedQueue,
)

__all__ = ["IPUOutfeedMode", "IPUOutfeedQueue", "IPUOutfeedQueueIterator", "ScopedIPUOutfeedQueue"]
__getattr__, __dir__ = public_names(__name__, __all__)
