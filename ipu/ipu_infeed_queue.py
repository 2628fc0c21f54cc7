"""Infeed queues: the public names of `tensorflow.python.ipu.ipu_infeed_queue` (Python API, 18.4)."""

from ipu._internal.names.namespace import public_names
from ipu._internal.queues.infeed_queue import IPUInfeedQueue, IPUIterator, IPUOwnedIterator

__all__ = ["IPUInfeedQueue", "IPUIterator", "IPUOwnedIterator"]
__getattr__, __dir__ = public_names(__name__, __all__)
